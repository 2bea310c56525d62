"""Unlabelled images that everybody has, for methods that compare models on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsir.data.resize import height_and_width
from fedsir.data.source import load_source
from fedsir.data.stratify import draw_by_class, largest_remainder, without_last_ones
from fedsir.errors import ConfigError, DataError

if TYPE_CHECKING:
    from fedsir.data.arrays import Images, Index, Labels, Names
    from fedsir.data.config import DataConfig
    from fedsir.randomness import KeyedRandom

HELD_OUT = "held-out"
HELD_OUT_SHARE = 1 / 8  # of the training images, at most
FEWEST = 2  # images that batch normalisation can compare
# What data.public is if a method needs some and nothing is said.
COUNTERPART = {"digits": HELD_OUT, "cifar10": "cifar100", "cifar100": "cifar10"}


def load_public(config: DataConfig, *, data_dir: Path, seed: int, download: bool = False) -> Images | None:
    """Return the images of the data set that data.public names, (m, channels, height, width); None if it names none."""
    if config.public in (None, HELD_OUT):
        return None
    path = Path(config.public).expanduser()
    if path.suffix == ".npz" and path.is_file():
        from fedsir.data.own_npz import load_npz_images  # labels are not needed here

        return load_npz_images(path, height_and_width(config.image_size))
    try:
        return load_source(
            config.public, data_dir=data_dir, seed=seed, download=download, image_size=config.image_size
        ).images
    except DataError as problem:
        raise DataError(f"data.public = {config.public}: {problem}") from problem


def draw_public(config: DataConfig, images: Images, shape: tuple[int, ...], random: KeyedRandom) -> Images:
    """Return data.public_size of the images, drawn at random; they must have the federation's (channels, h, w)."""
    if images.shape[1:] != shape:
        ours, theirs = ("×".join(map(str, form)) for form in (shape, images.shape[1:]))
        raise ConfigError(
            f"data.public = {config.public}: its images are {theirs}, but the federation's are {ours}; name images of "
            f"that form, or {HELD_OUT}"
        )
    if min(config.public_size, len(images)) < FEWEST:
        raise ConfigError(
            f"data.public = {config.public}: {FEWEST} images are needed; it has {len(images)}, of which "
            f"data.public_size takes {config.public_size}"
        )
    order = random.derive("public").for_numpy().permutation(len(images))
    return images[np.sort(order[: config.public_size])]


def hold_out(config: DataConfig, labels: Labels, random: KeyedRandom, clients: Names | None = None) -> Index:
    """Return sorted positions of the training samples to hold out, every class and client in its share.

    No class and no client loses its last sample. clients : (n,) owner of each sample, where the data name them
    """
    wanted = min(config.public_size, int(len(labels) * HELD_OUT_SHARE))
    spare = [max(0, int(count) - 1) for count in np.bincount(labels)]
    quota = largest_remainder([count * wanted / max(1, sum(spare)) for count in spare], wanted)
    held = without_last_ones(draw_by_class(labels, quota, random.derive("public"), clients), clients)
    if len(held) < FEWEST:
        raise ConfigError(
            f"data.public = {HELD_OUT} would take {len(held)} of {len(labels)} training samples, and {FEWEST} are "
            "needed: raise data.public_size or data.n_train, or name another data set"
        )
    return held
