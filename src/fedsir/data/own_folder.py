"""The user's own data as image files: ``client/class/image``.

If the folder holds nothing but ``train`` and ``test``, each with that structure (``test/class/image`` will
do), they are the training and the test part. What is not an image is an error or a note, never passed over in
silence.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageOps

from fedsir.data.naming import natural_order, readable_name
from fedsir.data.own_data import own_source, size_note
from fedsir.data.resize import Size, fit, gather
from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fedsir.data.arrays import Images
    from fedsir.data.source import Source

IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
IGNORED_SUFFIXES = {".txt", ".csv", ".json", ".md", ".db", ".ini"}
DEEP_MODES = {"I", "I;16", "I;16B", "I;16L", "I;16N"}  # grey, 16 bits a pixel; "I" has room for more
GREY_MODES = {"1", "L", "LA", *DEEP_MODES}
DEEP_TO_BYTE = 257  # 65535 / 255
TOO_LARGE = (MemoryError, Image.DecompressionBombError)


@dataclass
class Listing:
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
        by_name = {readable_name(str(parent), path.name): path for path in parent.iterdir()}
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
            if path.suffix.lower() not in IMAGE_SUFFIXES or not path.is_file():  # opening a pipe would wait for ever
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


def list_folder(root: Path) -> tuple[Listing, bool]:
    """Return the files of a folder, in natural order, and whether it has a train and a test part."""
    listing = Listing(root)
    top = listing.folders(root)
    has_split = _is_split(listing, top)
    if has_split:
        listing.add_clients(root / "train", is_test=False)
        _add_test(listing, root / "test")
    else:
        listing.add_clients(root, is_test=False)
    if not listing.files:
        raise DataError(f"{root} holds no images; they belong in client/class/image")
    return listing, has_split


def load_folder(root: Path, seed: int, size: Size | None = None) -> Source:
    """Return the data of a folder; ``seed`` keys the held-out fifth if it has no train and test part."""
    listing, has_split = list_folder(root)
    images, notes = _read_images(listing, size)
    if listing.ignored:
        notes.append(f"{root.name}: ignored {len(listing.ignored)} hidden, text or system files")
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
        notes=(*notes, *size_note(images, size)),
    )


def _is_split(listing: Listing, top: list[Path]) -> bool:
    """Whether the top folders are a train and a test part, and not two clients called so."""
    if [path.name for path in top] != ["test", "train"]:
        return False
    # A client's folder holds classes, which hold images; a train part is one level deeper.
    return any(
        below.is_dir() for folder in listing.entries(top[1]) if folder.is_dir() for below in listing.entries(folder)
    )


def _add_test(listing: Listing, folder: Path) -> None:
    """Add ``client/class/image`` or ``class/image``: nobody needs to own a test sample."""
    inside = [below for path in listing.folders(folder) for below in path.iterdir()]
    if any(below.is_dir() and not below.name.startswith(".") for below in inside):
        listing.add_clients(folder, is_test=True)
    else:
        for path in listing.entries(folder):
            listing.add_class(path, "test", is_test=True)


def peek_folder(root: Path) -> Size | None:
    """Return height and width of the first image that is found, None if there is none."""
    for path in chain(root.glob("*/*/*"), root.glob("*/*/*/*")):
        if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file():
            return size_of(path)
    return None


def size_of(path: Path, content: bytes | None = None) -> Size:
    """Return height and width of an image; ``content`` stands for the file."""
    with _opened(path, content) as image:
        return image.height, image.width


def _read_images(listing: Listing, size: Size | None) -> tuple[Images, list[str]]:
    """Return (n, channels, h, w), in colour if any image is, and notes on what was dropped."""
    notes: Counter[str] = Counter()
    is_grey = all(_is_grey(path) for path in listing.files)
    first: Size | None = None

    def pieces() -> Iterator[Images]:
        nonlocal first
        for path in listing.files:
            pixels = pixels_of(path, is_grey, size, notes)
            first = first or pixels.shape[:2]
            if pixels.shape[:2] != first:
                (h, w), (other_h, other_w) = first, pixels.shape[:2]
                raise DataError(
                    f"images differ in size: {listing.files[0]} is {w}×{h} pixels but {path} is {other_w}×{other_h}; "
                    "bring all to one size with data.image_size, for instance --set data.image_size=64"
                )
            yield pixels[None]

    images = gather(pieces(), len(listing.files), size, str(listing.root))
    return images, [f"{listing.root.name}: {note.format(n=n)}" for note, n in sorted(notes.items())]


def _is_grey(path: Path) -> bool:
    with _opened(path) as image:
        return image.mode in GREY_MODES


def pixels_of(
    path: Path, is_grey: bool, size: Size | None, notes: Counter[str], content: bytes | None = None
) -> Images:
    """Return one image upright as (h, w, 1 or 3), and count what is dropped of it; ``content`` stands for the file."""
    with _opened(path, content) as image:
        if getattr(image, "n_frames", 1) > 1:
            notes["took the first frame of {n} images that have several"] += 1
        if image.has_transparency_data:
            notes["dropped the transparency of {n} images"] += 1
        # Of 16-bit colour Pillow gives the upper 8 bits; only the raw mode tells.
        if image.mode in DEEP_MODES or any(";16" in str(tile.args) for tile in getattr(image, "tile", ())):
            notes["reduced {n} images from 16 to 8 bits a channel"] += 1
        if image.mode == "F":
            raise DataError(f"{path} has floating-point pixels; convert it to 8 or 16 bits")
        if size is not None:
            image.draft(None, (2 * max(size),) * 2)  # of a large JPEG, read no more detail than is used
        upright = ImageOps.exif_transpose(image)
        if upright.mode in DEEP_MODES:
            deep = np.asarray(upright).astype(np.int64)
            if deep.min() < 0 or deep.max() > DEEP_TO_BYTE * 255:
                raise DataError(f"{path} has more than 16 bits a pixel; convert it to 8 or 16 bits")
            upright = Image.fromarray(np.rint(deep / DEEP_TO_BYTE).astype(np.uint8))
        upright = upright.convert("L" if is_grey else "RGB")
        pixels = np.asarray(upright if size is None else fit(upright, size))
    return pixels.reshape(*pixels.shape[:2], -1)


@contextmanager
def _opened(path: Path, content: bytes | None = None) -> Iterator[Image.Image]:
    """Open an image file; whatever is wrong with it is a `DataError` that names it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # a large photo is no attack
            with Image.open(path if content is None else io.BytesIO(content)) as image:
                yield image
    except DataError:
        raise
    except (OSError, SyntaxError, ValueError, EOFError, KeyError, struct.error, *TOO_LARGE) as problem:
        reason = "it is too large" if isinstance(problem, TOO_LARGE) else problem
        raise DataError(f"{path} cannot be read as an image ({reason}); replace it or take it away") from None
