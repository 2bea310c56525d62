"""An npz file to audit: `labels`, `clients`, and `features` (n, d) or `images`.

`ids`, `paths` and `class_names` are used if they are there. Nothing in the file is ever unpickled.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from fedsir.auditing.sources import AuditData, Unreadable, file_digest
from fedsir.data.arrays import Images
from fedsir.data.naming import class_ids, texts_of
from fedsir.data.npy import StoredArray, open_array
from fedsir.data.resize import Size, gather
from fedsir.errors import DataError, did_you_mean

COLUMNS = ("labels", "clients", "ids", "paths", "class_names", "features")


def read_npz(path: Path, owner: str | None = None, *, wants_images: bool = False) -> AuditData:
    """Return the samples of an npz file; all are of `owner` if there is one."""
    with _archive(path) as members:
        arrays = {name: _opened(path, name, members).read() for name in COLUMNS if name in members}
        if wants_images:
            arrays.pop("features", None)
        if owner is not None and "labels" in arrays:
            arrays["clients"] = np.full(arrays["labels"].shape, owner)
        for name in ("labels", "clients"):
            if name not in arrays:
                suggestion = did_you_mean(name, members)
                raise DataError(f"{path}: there is no array called {name!r}; it holds {_list(members)}.{suggestion}")
        if "features" not in arrays and "images" not in members:
            raise DataError(f"{path}: there are no 'features' and no 'images'; it holds {_list(members)}.")
    labels, clients = arrays["labels"], arrays["clients"]
    if "class_names" in arrays:
        names = np.array(texts_of(f"{path}: 'class_names'", arrays["class_names"]))
        labels = names[class_ids(f"{path}: 'labels'", labels, names.tolist())]
    if "features" in arrays:
        kind, reader = "features", None
    else:
        kind, reader = "npz", NpzReader(path)
        for name in ("labels", "clients"):
            if arrays[name].shape != (reader.n,):
                shape = arrays[name].shape
                raise DataError(
                    f"{path}: {name!r} has shape {shape}, but there are {reader.n} images: give one for each"
                )
    return AuditData(
        path, kind, labels, clients, arrays.get("ids"), arrays.get("paths"), arrays.get("features"), reader
    )


class NpzReader:
    """The array `images` of an npz file, (n, h, w) or (n, h, w, 3) uint8, read piece by piece."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _archive(path) as members:
            stored = _opened(path, "images", members)
        shape = (*stored.shape, 1) if len(stored.shape) == 3 else stored.shape
        if len(shape) != 4 or shape[3] not in (1, 3) or 0 in shape or stored.dtype != np.uint8:
            raise DataError(
                f"{path}: 'images' is {stored.shape} {stored.dtype}; expected (n, height, width) or "
                "(n, height, width, 3) uint8"
            )
        self._form: tuple[int, ...] = shape[1:]
        self.n: int = shape[0]

    def images(self, size: Size) -> Iterator[Images | Unreadable]:
        with _archive(self._path) as members:
            for piece in _opened(self._path, "images", members).pieces():
                fitted = gather([piece.reshape(-1, *self._form)], len(piece), size, str(self._path))
                for image in fitted.transpose(0, 2, 3, 1):
                    yield image if image.shape[2] == 3 else image.repeat(3, axis=2)

    def chosen(self, rows: Sequence[int]) -> Iterator[tuple[int, Images]]:
        wanted, start = set(rows), 0
        with _archive(self._path) as members:
            for piece in _opened(self._path, "images", members).pieces():
                for row in wanted.intersection(range(start, start + len(piece))):
                    image = piece[row - start].reshape(self._form)
                    yield row, image if image.shape[2] == 3 else image.repeat(3, axis=2)
                start += len(piece)

    def sides(self) -> list[int]:
        return [min(self._form[:2])]

    def digest(self) -> str:
        return file_digest(self._path)


class _Members(dict[str, str]):
    """Arrays of an open npz file by name."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        super().__init__({name.removesuffix(".npy"): name for name in archive.namelist()})
        self.archive = archive


@contextmanager
def _archive(path: Path) -> Iterator[_Members]:
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an npz file (np.savez writes one)")
    try:
        with zipfile.ZipFile(path) as archive:
            yield _Members(archive)
    except DataError:
        raise
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as problem:
        raise DataError(f"{path} is not a readable npz file: {problem}") from None


def _opened(path: Path, name: str, members: _Members) -> StoredArray:
    member = members[name]
    stream = members.archive.open(member)  # closed with the archive
    try:
        return open_array(stream, members.archive.getinfo(member).file_size)
    except ValueError as problem:
        raise DataError(f"{path}: the npz file's array {name!r} cannot be read: {problem}") from None


def _list(members: _Members) -> str:
    return ", ".join(map(repr, members)) or "nothing"
