"""The user's own data in one npz file.

Arrays: ``images`` (n, h, w) or (n, h, w, 3) uint8; ``labels`` (n,) integers from 0 or class names; and, if
wanted, ``clients`` (n,) names or numbers, ``split`` (n,) "train" or "test", ``class_names`` (n_classes,).
Nothing in the file is ever unpickled.
"""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.data.naming import natural_order
from fedsir.data.own_data import own_source
from fedsir.errors import DataError, did_you_mean

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from fedsir.data.arrays import Images, Labels, Names
    from fedsir.data.source import Source

ARRAYS = ("images", "labels", "clients", "split", "class_names")


def load_npz(path: Path, seed: int) -> Source:
    """Return the data of an npz file; ``seed`` keys the held-out fifth if there is no ``split``."""
    arrays, notes = _read_arrays(path)
    images = _images(path, arrays["images"])
    n = len(images)
    for name in ("labels", "clients", "split"):
        if name in arrays and arrays[name].shape != (n,):
            shape = arrays[name].shape
            raise DataError(f"{path}: {name!r} has shape {shape}, but the length must be that of the {n} images")
    labels, class_names = _labels(path, arrays["labels"], arrays.get("class_names"))
    return own_source(
        path.stem,
        images,
        labels,
        class_names,
        seed=seed,
        clients=None if "clients" not in arrays else _client_names(path, arrays["clients"]),
        is_test=None if "split" not in arrays else _is_test(path, arrays["split"]),
        notes=notes,
    )


def load_npz_images(path: Path) -> Images:
    """Return the images of an npz file alone, (n, channels, height, width); it needs no labels."""
    arrays, _ = _read_arrays(path, needed=("images",))
    return _images(path, arrays["images"])


def _read_arrays(
    path: Path, needed: tuple[str, ...] = ("images", "labels")
) -> tuple[dict[str, npt.NDArray[Any]], tuple[str, ...]]:
    """Return the arrays this module knows, and a note on those it does not."""
    if not zipfile.is_zipfile(path):
        raise DataError(f"{path} is not an npz file (np.savez writes one)")
    arrays: dict[str, npt.NDArray[Any]] = {}
    try:
        with np.load(path, allow_pickle=False) as archive:
            ignored = [name for name in archive.files if name not in ARRAYS]
            for name in archive.files:
                if name in ARRAYS:
                    arrays[name] = archive[name]
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as problem:
        if "allow_pickle" in str(problem):
            raise DataError(
                f"{path}: an array holds Python objects, which would have to be unpickled and never are; "
                "save images, labels and names as plain integer and string arrays"
            ) from None
        raise DataError(f"{path} is not a readable npz file: {problem}") from None
    for name in ignored:
        suggestion = did_you_mean(name, [known for known in ARRAYS if known not in arrays])
        if suggestion:
            raise DataError(f"{path}: there is no use for an array called {name!r}.{suggestion}")
    for name in needed:
        if name not in arrays:
            raise DataError(f"{path}: there is no array called {name!r}; it holds {', '.join(arrays) or 'none'}")
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise DataError(f"{path}: {name!r} is not an array in the npz file's own format")
    return arrays, tuple(f"{path.name}: ignored the array {name!r}" for name in ignored)


def _images(path: Path, images: npt.NDArray[Any]) -> Images:
    """Return (n, channels, h, w) from (n, h, w), (n, h, w, 1) or (n, h, w, 3)."""
    if len(images.shape) == 0 or len(images) == 0:
        raise DataError(f"{path}: there are no samples: 'images' is empty")
    if images.dtype != np.uint8:
        raise DataError(
            f"{path}: 'images' must be uint8 with values 0 to 255, not {images.dtype}; "
            "for finite values in [0, 1], save (255 * images).round().astype('uint8')"
        )
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise DataError(
            f"{path}: 'images' has shape {images.shape}; expected (n, height, width) or (n, height, width, 3)"
        )
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def _labels(
    path: Path, labels: npt.NDArray[Any], class_names: npt.NDArray[Any] | None
) -> tuple[Labels, tuple[str, ...]]:
    """Return class ids and class names, from integer labels or from names."""
    names = None if class_names is None else _texts(path, "class_names", class_names.reshape(-1))
    if names is not None and len(set(names)) < len(names):
        raise DataError(f"{path}: 'class_names' names a class twice")
    if labels.dtype.kind in "US":
        words = _texts(path, "labels", labels)
        names = names or natural_order(words)
        position = {name: c for c, name in enumerate(names)}
        unknown = sorted(set(words) - set(position))
        if unknown:
            raise DataError(f"{path}: label {unknown[0]!r} is not among 'class_names'")
        return np.array([position[word] for word in words], np.int64), names
    if labels.dtype.kind not in "iu":
        raise DataError(f"{path}: 'labels' must be integers from 0, or class names, not {labels.dtype}")
    if labels.min() < 0:
        raise DataError(f"{path}: 'labels' must not be negative; the smallest label is {labels.min()}")
    highest, limit = int(labels.max()), len(labels) if names is None else len(names)
    if highest >= limit:
        reason = f"there are only {limit} " + ("samples" if names is None else "'class_names'")
        raise DataError(f"{path}: label {highest} is too large, as {reason}; labels count from 0 without gaps")
    return labels.astype(np.int64), names or tuple(str(c) for c in range(highest + 1))


def _client_names(path: Path, clients: npt.NDArray[Any]) -> Names:
    names = _texts(path, "clients", clients)
    if "" in names:
        raise DataError(f"{path}: sample {names.index('')} has an empty name in 'clients'")
    return np.array(names)


def _is_test(path: Path, split: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    words = _texts(path, "split", split)
    for part in ("train", "test"):
        if part not in words:
            raise DataError(f"{path}: no sample has {part!r} in 'split'; leave 'split' out to hold out a fifth")
    other = sorted(set(words) - {"train", "test"})
    if other:
        raise DataError(f"{path}: 'split' holds {other[0]!r}; only 'train' and 'test' have a meaning")
    return np.array([word == "test" for word in words])


def _texts(path: Path, name: str, array: npt.NDArray[Any]) -> tuple[str, ...]:
    """Return the entries of a string or integer array as text."""
    if array.dtype.kind == "S":
        try:
            return tuple(entry.decode() for entry in array.tolist())
        except UnicodeDecodeError:
            raise DataError(f"{path}: {name!r} holds bytes that are not UTF-8 text") from None
    if array.dtype.kind not in "Uiu":
        raise DataError(f"{path}: {name!r} must hold text or integers, not {array.dtype}")
    return tuple(str(entry) for entry in array.tolist())
