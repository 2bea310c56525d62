"""The user's own data in one npz file.

Arrays: ``images`` (n, h, w) or (n, h, w, 3) uint8; ``labels`` (n,) integers from 0 or class names; and, if
wanted, ``clients`` (n,) names or numbers, ``split`` (n,) "train" or "test", ``class_names`` (n_classes,).
Nothing in the file is ever unpickled.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedsir.data.naming import class_ids, natural_order, texts_of
from fedsir.data.npy import StoredArray, open_array
from fedsir.data.own_data import own_source, size_note
from fedsir.data.resize import Size, gather
from fedsir.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from fedsir.data.arrays import Images, Labels
    from fedsir.data.source import Source

ARRAYS = ("images", "labels", "clients", "split", "class_names")


def load_npz(path: Path, seed: int, size: Size | None = None) -> Source:
    """Return the data of an npz file; ``seed`` keys the held-out fifth if there is no ``split``."""
    arrays, notes = _read_arrays(path, ("images", "labels"), size)
    n = len(arrays["images"])
    for name in ("labels", "clients", "split"):
        if name in arrays and arrays[name].shape != (n,):
            shape = arrays[name].shape
            raise DataError(f"{path}: {name!r} has shape {shape}, but the length must be that of the {n} images")
    labels, class_names = _labels(path, arrays["labels"], arrays.get("class_names"))
    return own_source(
        path.stem,
        arrays["images"],
        labels,
        class_names,
        seed=seed,
        clients=None if "clients" not in arrays else np.array(texts_of(f"{path}: 'clients'", arrays["clients"])),
        is_test=None if "split" not in arrays else _is_test(path, arrays["split"]),
        notes=(*notes, *size_note(arrays["images"], size)),
    )


def load_npz_images(path: Path, size: Size | None = None) -> Images:
    """Return the images of an npz file alone, (n, channels, height, width); it needs no labels."""
    return _read_arrays(path, ("images",), size)[0]["images"]


def peek_npz(path: Path) -> Size:
    """Return height and width of the images, from their header."""
    with zipfile.ZipFile(path) as archive, archive.open("images.npy") as stream:
        height, width = open_array(stream, archive.getinfo("images.npy").file_size).shape[1:3]
    return height, width


def _read_arrays(
    path: Path, needed: tuple[str, ...], size: Size | None
) -> tuple[dict[str, npt.NDArray[Any]], tuple[str, ...]]:
    """Return the arrays this module knows, images as (n, channels, h, w), and a note on those it does not."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an npz file (np.savez writes one)")
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            members = {name.removesuffix(".npy"): name for name in archive.namelist()}
            for name in ARRAYS:
                if name in members:
                    with archive.open(members[name]) as stream:
                        stored = _opened(path, name, stream, archive.getinfo(members[name]).file_size)
                        arrays[name] = _images(path, stored, size) if name == "images" else stored.read()
    except DataError:
        raise
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as problem:
        raise DataError(f"{path} is not a readable npz file: {problem}") from None
    ignored = [name for name in members if name not in ARRAYS]
    for name in ignored:
        suggestion = did_you_mean(name, [known for known in ARRAYS if known not in arrays])
        if suggestion:
            raise DataError(f"{path}: there is no use for an array called {name!r}.{suggestion}")
    for name in needed:
        if name not in arrays:
            raise DataError(f"{path}: there is no array called {name!r}; it holds {', '.join(arrays) or 'none'}")
    return arrays, tuple(f"{path.name}: ignored the array {name!r}" for name in ignored)


def _opened(path: Path, name: str, stream: IO[bytes], n_bytes: int) -> StoredArray:
    try:
        return open_array(stream, n_bytes)
    except ValueError as problem:
        raise DataError(f"{path}: the npz file's array {name!r} cannot be read: {problem}") from None


def _images(path: Path, stored: StoredArray, size: Size | None) -> Images:
    """Return (n, channels, h, w) from (n, h, w), (n, h, w, 1) or (n, h, w, 3)."""
    shape = stored.shape
    if not shape or shape[0] == 0:
        raise DataError(f"{path}: there are no samples: 'images' is empty")
    if stored.dtype != np.uint8:
        raise DataError(
            f"{path}: 'images' must be uint8 with values 0 to 255, not {stored.dtype}; "
            "for finite values in [0, 1], save (255 * images).round().astype('uint8')"
        )
    form = (*shape[1:], 1) if len(shape) == 3 else shape[1:]  # of one image
    if len(form) != 3 or form[2] not in (1, 3) or 0 in form:
        raise DataError(f"{path}: 'images' has shape {shape}; expected (n, height, width) or (n, height, width, 3)")
    return gather((piece.reshape(-1, *form) for piece in stored.pieces()), shape[0], size, str(path))


def _labels(
    path: Path, labels: npt.NDArray[Any], class_names: npt.NDArray[Any] | None
) -> tuple[Labels, tuple[str, ...]]:
    """Return class ids and class names, from integer labels or from names."""
    where = f"{path}: 'labels'"
    if class_names is not None:
        names = tuple(texts_of(f"{path}: 'class_names'", class_names))
        if len(set(names)) < len(names):
            raise DataError(f"{path}: 'class_names' names a class twice")
    elif labels.dtype.kind in "US":
        names = natural_order(texts_of(where, labels))
    else:  # there are no more classes than samples
        highest = max(0, int(labels.max())) if labels.dtype.kind in "iu" else 0
        names = tuple(str(c) for c in range(min(highest + 1, len(labels))))
    return class_ids(where, labels, names), names


def _is_test(path: Path, split: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    words = texts_of(f"{path}: 'split'", split)
    for part in ("train", "test"):
        if part not in words:
            raise DataError(f"{path}: no sample has {part!r} in 'split'; leave 'split' out to hold out a fifth")
    other = sorted(set(words) - {"train", "test"})
    if other:
        raise DataError(f"{path}: 'split' holds {other[0]!r}; only 'train' and 'test' have a meaning")
    return np.array([word == "test" for word in words])
