"""Given labels from a file, for instance those that people gave to a published data set."""

from __future__ import annotations

import csv
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.data.naming import class_ids
from fedsir.data.npy import open_array
from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from fedsir.data.arrays import Labels


def read_labels_file(file: str, n_samples: int, class_names: Sequence[str]) -> Labels:
    """Return the given label of every training sample, in the order of the data set.

    Parameters
    ----------
    file : npy; npz with an array ``labels`` (or only one array); or csv with one label a line, or with a
        header that has a column ``label``. Labels are class ids or class names.
    n_samples : how many labels there must be
    class_names : (n_classes,)
    """
    path = Path(file).expanduser()
    readers = {".npy": _read_npy, ".npz": _read_npz, ".csv": _read_csv}
    if path.suffix.lower() not in readers:
        raise DataError(f"labels_file {path} must be an npz, npy or csv file")
    if not path.is_file():  # opening a pipe would wait for ever
        raise DataError(f"labels_file {path} cannot be read: it is not a file")
    try:
        array = readers[path.suffix.lower()](path)
    except DataError:
        raise
    except (OSError, ValueError, OverflowError, EOFError, zipfile.BadZipFile, zlib.error, csv.Error) as problem:
        raise DataError(f"labels_file {path} cannot be read: {problem}") from None
    if array.shape != (n_samples,):
        raise DataError(
            f"labels_file {path} has labels of shape {array.shape}, but there are {n_samples} training samples"
        )
    return class_ids(f"labels_file {path}: labels", array, class_names)


def _read_npy(path: Path) -> npt.NDArray[Any]:
    with path.open("rb") as opened:
        return open_array(opened, path.stat().st_size).read()


def _read_npz(path: Path) -> npt.NDArray[Any]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        name = "labels.npy" if "labels.npy" in names else names[0] if len(names) == 1 else None
        if name is None:
            raise DataError(f"labels_file {path} has no array called 'labels'")
        with archive.open(name) as opened:
            return open_array(opened, archive.getinfo(name).file_size).read()


def _read_csv(path: Path) -> npt.NDArray[Any]:
    with path.open(newline="", encoding="utf-8-sig") as opened:
        rows = [row for row in csv.reader(opened) if row]
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    column = 0
    if "label" in header:
        column, rows = header.index("label"), rows[1:]
    elif len(header) > 1:
        raise DataError(f"labels_file {path} has several columns, but none is headed 'label'")
    short = next((i for i, row in enumerate(rows) if len(row) <= column), None)
    if short is not None:
        raise DataError(f"labels_file {path}: row {short} has no label")
    words = np.array([row[column].strip() for row in rows], dtype=np.str_)
    is_integer = all(word.isascii() and word.removeprefix("-").isdecimal() for word in words.tolist())
    return np.array([int(word) for word in words.tolist()], dtype=np.int64) if is_integer else words
