"""From settings to a federation: draw a subset, deal it to clients, make labels wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsir.data import noise, partition
from fedsir.data.cover import choose_noisy_clients, default_cover_min_samples
from fedsir.data.directory import data_directory
from fedsir.data.federation import FederatedData, assemble
from fedsir.data.instance_noise import instance_dependent
from fedsir.data.labels_file import read_labels_file
from fedsir.data.noise_rate import rate_of_client
from fedsir.data.public import HELD_OUT, draw_public, hold_out, load_public
from fedsir.data.source import load_source
from fedsir.data.stratify import draw_by_class, quota_by_class
from fedsir.errors import ConfigError, DataError
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from pathlib import Path

    from fedsir.data.arrays import Images, Index, Labels, Names
    from fedsir.data.config import DataConfig
    from fedsir.data.source import Source


def load_federation(
    config: DataConfig, *, seed: int, data_dir: str | Path | None = None, download: bool = False
) -> FederatedData:
    """Return the federation that ``config`` describes, from where its data lie."""
    source, public = load_images(config, seed=seed, data_dir=data_dir, download=download)
    return build_federation(config, source, seed=seed, public=public)


def load_images(
    config: DataConfig, *, seed: int, data_dir: str | Path | None = None, download: bool = False
) -> tuple[Source, Images | None]:
    """Return what `build_federation` deals: the data set, and the public images if data.public names any."""
    where = data_directory(data_dir)
    source = load_source(config.dataset, data_dir=where, seed=seed, download=download, image_size=config.image_size)
    return source, load_public(config, data_dir=where, seed=seed, download=download)


def build_federation(config: DataConfig, source: Source, *, seed: int, public: Images | None = None) -> FederatedData:
    """Return the federation that ``config`` describes: draw a subset, deal it, make labels wrong.

    ``public`` holds the images that `load_public` found.
    """
    random = KeyedRandom(seed, ("data",))
    kept = _subset(source.train_labels, config.n_train, "n_train", random, source.clients)
    test = _subset(source.test_labels, config.n_test, "n_test", random)
    public_images = None if public is None else draw_public(config, public, source.images.shape[1:], random)
    if config.public == HELD_OUT:
        held = hold_out(
            config, source.train_labels[kept], random, None if source.clients is None else source.clients[kept]
        )
        public_images = source.images[source.train_rows[kept[held]]]
        kept = np.delete(kept, held)
    true = source.train_labels[kept]
    owners = None if source.clients is None else source.clients[kept]
    names, parts = _deal(config, true, owners, source, seed, random)
    counts = np.stack([np.bincount(true[part], minlength=source.n_classes) for part in parts])
    noisy: tuple[int, ...] = ()
    rates: dict[int, float] = {}
    given = true
    if config.adds_noise:
        threshold = config.cover_min_samples or default_cover_min_samples(len(true), source.n_classes)
        chooser = random.derive("noisy clients")
        noisy = choose_noisy_clients(config.noisy_clients, names, counts, threshold, chooser)
        rates = {k: rate_of_client(config.noise_rate, random.derive("noise rate", names[k])) for k in noisy}
        given = _given_labels(config, source, kept, parts, names, rates, seed, random)
    is_right = {k for k in noisy if np.array_equal(given[parts[k]], true[parts[k]])}
    in_vain = [names[k] for k in noisy if k in is_right]
    has_rate = noisy and config.noise in ("symmetric", "pair", "instance")
    wanted = np.average(list(rates.values()), weights=[len(parts[k]) for k in noisy]) if has_rate else None
    mine = np.concatenate([parts[k] for k in noisy]) if noisy else np.empty(0, np.int64)
    notes = noise.notes(in_vain, true[mine], given[mine], wanted)

    order = np.concatenate(parts)
    is_known = source.is_benchmark or config.adds_noise
    return assemble(
        source,
        names,
        [len(part) for part in parts],
        source_index=kept[order],
        given=given[order],
        true=true[order] if is_known else None,
        noisy=[k for k in noisy if k not in is_right],
        test=test,
        public_images=public_images,
        notes=notes,
    )


def _subset(labels: Labels, n: int | None, setting: str, random: KeyedRandom, groups: Names | None = None) -> Index:
    """Return sorted positions of ``n`` samples that keep the shares of the classes; of all if n is None."""
    if n is None or n == len(labels):
        return np.arange(len(labels))
    counts = np.bincount(labels).tolist()
    n_present = sum(count > 0 for count in counts)
    if not n_present <= n <= len(labels):
        raise ConfigError(
            f"data.{setting} = {n} must be from {n_present} (one per class) to {len(labels)} (all there are)"
        )
    return draw_by_class(labels, quota_by_class(counts, n), random.derive(setting), groups)


def _deal(
    config: DataConfig, labels: Labels, owners: Names | None, source: Source, seed: int, random: KeyedRandom
) -> tuple[tuple[str, ...], list[Index]]:
    """Return client names and the positions each one owns."""
    kind = config.partition
    if kind == "auto":
        kind = "dirichlet" if owners is None else "by_column"
    n, stream = config.n_clients, random.derive("partition", kind)
    if kind == "by_column":
        if owners is None or source.clients is None:
            raise ConfigError(f"data.partition = by_column, but {source.name} does not say which client owns what")
        lost = np.setdiff1d(source.clients, owners)
        if len(lost):
            raise ConfigError(f"data.n_train = {config.n_train} leaves client {str(lost[0])!r} no sample: raise it")
        return partition.by_column(owners)
    if kind == "dirichlet":
        parts = partition.dirichlet(labels, n, config.alpha, config.min_samples, stream)
    elif kind == "authors":
        parts = partition.authors_dirichlet(labels, n, config.alpha, seed)
    elif kind == "iid":
        parts = partition.iid(labels, n, stream)
    else:
        parts = partition.shards(labels, n, config.shards_per_client, stream)
    empty = [k for k, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise DataError(
            f"client {empty[0]} got no sample from data.partition = {kind} ({len(empty)} of {n} clients got none): "
            "raise data.alpha, lower data.n_clients, or use data.partition = dirichlet, which fills them up"
        )
    return tuple(str(k) for k in range(n)), parts


def _given_labels(
    config: DataConfig,
    source: Source,
    kept: Index,
    parts: list[Index],
    names: tuple[str, ...],
    rates: dict[int, float],
    seed: int,
    random: KeyedRandom,
) -> Labels:
    """Return the labels of all kept samples after noise; ``rates`` has the noise rate of each noisy client's number."""
    true, n_classes = source.train_labels[kept], source.n_classes
    if config.noise_draw == "authors":
        assert isinstance(config.noise_rate, float), "one rate for all"
        return noise.authors_symmetric(true, parts, list(rates), n_classes, config.noise_rate, seed)
    streams = {k: random.derive("noise", names[k]) for k in rates}
    if config.noise == "instance":
        images, rows, projections = source.images, source.train_rows[kept], random.derive("noise projections")
        return instance_dependent(
            true, parts, rates, streams, images, rows, source.preprocessing, n_classes, projections
        )
    targets = noise.pair_targets(n_classes)
    if config.noise == "asymmetric":
        if source.confused_with is None:
            raise ConfigError(
                f"data.noise = asymmetric is defined for digits, cifar10 and cifar100, not for {source.name}: "
                "use pair, or matrix with data.transition"
            )
        targets = source.confused_with
    transition = np.array(config.transition or (), np.float64)
    if config.noise == "matrix" and len(transition) != n_classes:
        raise ConfigError(f"data.transition has {len(transition)} rows, but {source.name} has {n_classes} classes")
    from_file = np.empty(0, np.int64)
    if config.labels_file is not None:
        from_file = read_labels_file(config.labels_file, len(source.train_labels), source.class_names)[kept]
    given = true.copy()
    for k, rate in rates.items():
        mine, stream = parts[k], streams[k]
        if config.noise == "symmetric":
            given[mine] = noise.symmetric(true[mine], n_classes, rate, stream)
        elif config.noise == "matrix":
            given[mine] = noise.by_transition(true[mine], transition, stream)
        elif config.noise == "file":
            given[mine] = from_file[mine]
        else:
            given[mine] = noise.flip_to(true[mine], targets, rate, stream)
    return given
