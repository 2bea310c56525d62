"""The user's own data as image files: ``client/class/image``.

If the folder holds nothing but ``train`` and ``test``, each with that structure (``test/class/image`` will
do), they are the training and the test part. What is not an image is an error or a note, never passed over in
silence.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from fedsir.data.naming import natural_order
from fedsir.data.own_data import own_source
from fedsir.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from fedsir.data.arrays import Images
    from fedsir.data.source import Source

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
IGNORED_SUFFIXES = {".txt", ".csv", ".json", ".md", ".db"}
GREY_MODES = {"1", "L", "LA"}
DEEP_MODES = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}


@dataclass
class _Listing:
    """The files found so far; one entry per image in the four lists."""

    root: Path
    files: list[Path] = field(default_factory=list)
    clients: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    is_test: list[bool] = field(default_factory=list)
    class_names: set[str] = field(default_factory=set)
    ignored: set[Path] = field(default_factory=set)

    def relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def folders(self, parent: Path) -> list[Path]:
        """Return the folders in one that must hold only folders, in natural order."""
        found = self.entries(parent)
        for path in found:
            if not path.is_dir():
                raise DataError(f"{path} lies outside a class folder; images belong in client/class/image")
        return found

    def entries(self, parent: Path) -> list[Path]:
        """Return what lies in a folder, in natural order, without what is ignored and counted."""
        by_name = {path.name: path for path in parent.iterdir()}
        for name in by_name:
            if not name.isprintable():  # bytes that are no UTF-8 are not, nor are line breaks
                raise DataError(f"{name!r} in {parent} is not a readable name (UTF-8); rename it")
        kept = []
        for name in natural_order(by_name):
            path = by_name[name]
            if name.startswith(".") or (path.suffix.lower() in IGNORED_SUFFIXES and not path.is_dir()):
                self.ignored.add(path)
            else:
                kept.append(path)
        return kept

    def add_class(self, folder: Path, client: str, is_test: bool) -> int:
        """Add the images of one class folder and return how many they are."""
        self.class_names.add(folder.name)
        images = self.entries(folder)
        for path in images:
            if path.is_dir():
                raise DataError(f"{path} is a folder inside a class folder; images belong in client/class/image")
            if path.suffix.lower() not in IMAGE_SUFFIXES:
                raise DataError(f"{path} is not an image file this can read; convert it or take it away")
            self.files.append(path)
            self.clients.append(client)
            self.classes.append(folder.name)
            self.is_test.append(is_test)
        return len(images)

    def add_clients(self, parent: Path, is_test: bool) -> None:
        """Add every ``client/class/image`` below a folder."""
        for client in self.folders(parent):
            n_images = sum(self.add_class(c, client.name, is_test) for c in self.folders(client))
            if n_images == 0:
                raise DataError(f"client {client.name!r} has no image in {client}; add some or take the folder away")


def load_folder(root: Path, seed: int) -> Source:
    """Return the data of a folder; ``seed`` keys the held-out fifth if it has no train and test part."""
    listing = _Listing(root)
    top = listing.folders(root)
    has_split = _is_split(listing, top)
    if has_split:
        listing.add_clients(root / "train", is_test=False)
        _add_test(listing, root / "test")
    else:
        listing.add_clients(root, is_test=False)
    if not listing.files:
        raise DataError(f"{root} holds no images; they belong in client/class/image")
    images, notes = _read_images(listing)
    if listing.ignored:
        notes.append(f"{root.name}: ignored {len(listing.ignored)} hidden, text or database files")
    class_names = natural_order(listing.class_names)
    position = {name: c for c, name in enumerate(class_names)}
    return own_source(
        root.resolve().name,
        images,
        np.array([position[name] for name in listing.classes], np.int64),
        class_names,
        seed=seed,
        clients=np.array(listing.clients),
        is_test=np.array(listing.is_test) if has_split else None,
        sample_names=tuple(listing.relative(path) for path in listing.files),
        notes=tuple(notes),
    )


def _is_split(listing: _Listing, top: list[Path]) -> bool:
    """Whether the top folders are a train and a test part, and not two clients called so."""
    if [path.name for path in top] != ["test", "train"]:
        return False
    # A client's folder holds classes, which hold images; a train part is one level deeper.
    return any(
        below.is_dir() for folder in listing.entries(top[1]) if folder.is_dir() for below in listing.entries(folder)
    )


def _add_test(listing: _Listing, folder: Path) -> None:
    """Add ``client/class/image`` or ``class/image``: nobody needs to own a test sample."""
    inside = [below for path in listing.folders(folder) for below in path.iterdir()]
    if any(below.is_dir() and not below.name.startswith(".") for below in inside):
        listing.add_clients(folder, is_test=True)
    else:
        for path in listing.entries(folder):
            listing.add_class(path, "test", is_test=True)


def _read_images(listing: _Listing) -> tuple[Images, list[str]]:
    """Return (n, channels, h, w), in colour if any image is, and notes on what was dropped."""
    arrays: list[Images] = []
    n_transparent = n_animated = 0
    for path in listing.files:
        try:
            with Image.open(path) as opened:
                n_animated += getattr(opened, "n_frames", 1) > 1
                n_transparent += opened.has_transparency_data
                if opened.mode in DEEP_MODES:
                    raise DataError(f"{path} has more than 8 bits a pixel (mode {opened.mode}); convert it to 8 bits")
                is_grey = opened.mode in GREY_MODES
                upright = ImageOps.exif_transpose(opened)
                arrays.append(np.asarray(upright.convert("L" if is_grey else "RGB")))
        except (
            OSError,
            SyntaxError,
            ValueError,
            EOFError,
            struct.error,
            Image.DecompressionBombError,
        ) as problem:
            raise DataError(f"{path} cannot be read as an image ({problem}); replace it or take it away") from None
        if arrays[-1].shape[:2] != arrays[0].shape[:2]:
            (h, w), (other_h, other_w) = arrays[0].shape[:2], arrays[-1].shape[:2]
            raise DataError(
                f"images differ in size: {listing.files[0]} is {w}×{h} pixels but {path} is "
                f"{other_w}×{other_h}; bring all to one size"
            )
    if any(array.ndim == 3 for array in arrays):
        arrays = [array if array.ndim == 3 else np.repeat(array[..., None], 3, axis=2) for array in arrays]
        images = np.stack(arrays).transpose(0, 3, 1, 2)
    else:
        images = np.stack(arrays)[:, None]
    notes = []
    if n_transparent:
        notes.append(f"{listing.root.name}: dropped the transparency of {n_transparent} images")
    if n_animated:
        notes.append(f"{listing.root.name}: took the first frame of {n_animated} images that have several")
    return np.ascontiguousarray(images), notes
