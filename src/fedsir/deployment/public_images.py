"""Unlabelled images of which the server and every site have a copy, for methods that compare models on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedsir.data.arrays import fingerprint
from fedsir.data.directory import data_directory
from fedsir.data.public import HELD_OUT, draw_public, load_public
from fedsir.errors import ConfigError
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from fedsir.data.arrays import Images
    from fedsir.deployment.agreement import Agreement
    from fedsir.runs.config import RunConfig


def check_public(config: RunConfig) -> None:
    """Refuse a method that needs public images where the settings name none that could be copied."""
    if not config.method.needs_public:
        return
    path = config.data.public
    if not path or path == HELD_OUT:
        raise ConfigError(
            f"{config.method.name} needs unlabelled images that everybody has: name an npz file or a folder in "
            "data.public, and give every site a copy (`fedsir flower site --public`)."
        )
    if Path(path).suffix == ".npz" and not Path(path).is_file():
        raise ConfigError(f"data.public: {path} is not there.")


def public_images(config: RunConfig, path: str, agreement: Agreement) -> Images:
    """Return the run's draw of the images in `path`, (p, channels, height, width): the same from every copy."""
    named = config.data.model_copy(update={"public": path, "image_size": agreement.image_size})
    images = load_public(named, data_dir=data_directory(None), seed=config.seed)
    assert images is not None, "something is named"
    return draw_public(named, images, (agreement.channels, *agreement.image_size), KeyedRandom(config.seed, ("data",)))


def public_sha256(images: Images) -> str:
    """Return what tells whether two copies are the same."""
    return fingerprint(images=images)
