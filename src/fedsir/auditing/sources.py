"""Read what is to be audited: a folder client/class/image, an npz or a parquet file, with images or with features."""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsir.data.arrays import Images
from fedsir.data.own_folder import list_folder, pixels_of, size_of
from fedsir.data.resize import Size
from fedsir.errors import DataError

HASHED_AT_ONCE = 2**22  # bytes
PEEKED = 100  # images whose size is looked at


@dataclass(frozen=True)
class Unreadable:
    """Why an image cannot be read."""

    reason: str


class ImageReader(Protocol):
    """Images of any sizes, one at a time."""

    def images(self, size: Size) -> Iterator[Images | Unreadable]:
        """Yield every image as (height, width, 3), fitted to that size, or why it cannot be read."""
        ...

    def chosen(self, rows: Sequence[int]) -> Iterator[tuple[int, Images]]:
        """Yield some images by row, (height, width, 3) as large as they are."""
        ...

    def sides(self) -> list[int]:
        """Return the shorter side of some images, in pixels."""
        ...

    def digest(self) -> str:
        """Return a hash of all content, by which features are found again."""
        ...


@dataclass(frozen=True, eq=False)
class AuditData:
    """Samples to audit.

    kind : "folder", "npz" or "parquet" if there are images, "features" if there are features
    labels, clients, ids, paths : (n,); ids are row numbers if None, paths are None where there are none
    features : (n, d), or None if `reader` has images
    """

    path: Path
    kind: str
    labels: NDArray[Any]
    clients: NDArray[Any]
    ids: NDArray[Any] | None
    paths: NDArray[Any] | None
    features: NDArray[Any] | None
    reader: ImageReader | None


def read_data(path: Path, owner: str | None = None, *, wants_images: bool = False) -> AuditData:
    """Return the samples of a folder or file; images are read later, one by one.

    Parameters
    ----------
    owner : whose samples all of them are, whatever the data say; by default the data say it
    wants_images : look at the images of an npz file that has features, too
    """
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as problem:
        raise DataError(f"{str(path)!r} cannot be read: {problem}") from None
    if is_folder:
        found = _read_folder(path)
        return found if owner is None else replace(found, clients=np.full(len(found.labels), owner))
    if not is_file:
        raise DataError(f"there is no file or folder {path}")
    if path.suffix.lower() == ".npz":
        from fedsir.auditing.npz_file import read_npz

        return read_npz(path, owner, wants_images=wants_images)
    if path.suffix.lower() in (".parquet", ".pq") and owner is None:
        from fedsir.auditing.parquet_file import read_parquet

        return read_parquet(path)
    raise DataError(f"{path}: give a folder client/class/image, an .npz or a .parquet file (docs/audit.md)")


def _read_folder(root: Path) -> AuditData:
    listing, _ = list_folder(root)
    names = np.array([listing.relative(path) for path in listing.files])
    # A path is an id of its own, and stays one when images are added.
    return AuditData(
        root,
        "folder",
        np.array(listing.classes),
        np.array(listing.clients),
        names,
        names,
        None,
        FileReader(root, listing.files, names.tolist()),
    )


class FileReader:
    """Images in files of their own."""

    def __init__(self, root: Path, files: Sequence[Path], names: Sequence[str]) -> None:
        self._root, self._files, self._names = root, files, names

    def images(self, size: Size) -> Iterator[Images | Unreadable]:
        notes: Counter[str] = Counter()
        for path in self._files:
            yield read_image(path, size, notes)

    def chosen(self, rows: Sequence[int]) -> Iterator[tuple[int, Images]]:
        notes: Counter[str] = Counter()
        for row in rows:
            image = read_image(self._files[row], None, notes)
            if not isinstance(image, Unreadable):
                yield row, image

    def sides(self) -> list[int]:
        some = np.unique(np.linspace(0, len(self._files) - 1, PEEKED).astype(int)).tolist()
        return shorter_sides((self._files[i], None) for i in some)

    def digest(self) -> str:
        whole = hashlib.sha256()
        for path, name in zip(self._files, self._names, strict=True):
            whole.update(f"{len(name)}:{name} {file_digest(path)}".encode())
        return whole.hexdigest()


def read_image(path: Path, size: Size | None, notes: Counter[str], content: bytes | None = None) -> Images | Unreadable:
    """Return an image as (height, width, 3), or why it cannot be read; ``content`` stands for the file."""
    try:
        return pixels_of(path, False, size, notes, content)
    except DataError as problem:
        return Unreadable(str(problem).removeprefix(f"{path} "))


def shorter_sides(images: Iterable[tuple[Path, bytes | None]]) -> list[int]:
    """Return the shorter side of each image that can be opened, in pixels; of the others, reading says more."""
    sides = []
    for path, content in images:
        with contextlib.suppress(DataError):
            sides.append(min(size_of(path, content)))
    return sides


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file; of one that cannot be read, that it cannot."""
    whole = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(HASHED_AT_ONCE):
                whole.update(piece)
    except OSError:
        return "unreadable"
    return whole.hexdigest()
