"""What clients and classes are called, and in which order they are listed: "site 2" before "site 10"."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.data.arrays import as_column
from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from fedsir.data.arrays import Labels

MISSING = ("NoneType", "NAType", "NaTType")  # the last two are pandas'


def natural_key(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return what to sort names by so that runs of digits are compared as numbers."""
    pieces = re.split(r"0*([0-9]+)", name)  # text, digits, text, digits, …
    # Digits meet digits and text meets text at each position. Of numbers, the longer one is the larger.
    return [(len(p) if i % 2 else -1, p) for i, p in enumerate(pieces)], name


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names in natural order."""
    return tuple(sorted(set(names), key=natural_key))


def readable_name(where: str, entry: object) -> str:
    """Return what a label, client or file is called; a `DataError` if that is no text that can be shown.

    Control characters, line breaks and lone surrogates cannot.
    """
    try:
        name = entry.decode(errors="surrogateescape") if isinstance(entry, bytes) else str(entry)
    except ValueError:
        raise DataError(f"{where} is an integer of thousands of digits; name it otherwise") from None
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in name):
        raise DataError(
            f"{where}: the name {name!r} is not readable text (UTF-8 without control characters); rename it"
        )
    if not name.strip():
        raise DataError(f"{where} has an empty name")
    return name


def named_entries(what: str, values: Any, n: int, rows: str) -> tuple[list[Any], dict[Any, str]]:
    """Return labels or clients, one for each of n rows, and what each distinct one of them is called.

    Parameters
    ----------
    what, rows : what the values and the rows are, for errors
    values : an array, tensor, column or list of whole numbers, or of names of any hashable kind
    """
    array = as_column(what, values)
    if array.shape != (n,):
        raise DataError(f"{what} have shape {array.shape}, but there are {n} {rows}: give one for each")
    entries = array.tolist()
    for row, entry in enumerate(entries):
        if type(entry).__name__ in MISSING or (isinstance(entry, float) and entry != entry):
            raise DataError(f"{what}: row {row} is missing ({entry})")
    if array.dtype.kind not in "OUSiub":
        advice = "; .astype(int) makes whole numbers of them" if array.dtype.kind == "f" else ""
        raise DataError(f"{what} are {array.dtype}; give whole numbers or names{advice}")
    names: dict[Any, str] = {}
    for row, entry in enumerate(entries):
        try:
            is_new = entry not in names
        except TypeError:
            raise DataError(f"{what}: row {row} is a {type(entry).__name__}, which is not hashable") from None
        if is_new:
            if isinstance(entry, float):
                raise DataError(f"{what}: row {row} is the float {entry:g}; give whole numbers or names")
            names[entry] = readable_name(f"{what}: row {row}", entry)
    return entries, names


def texts_of(where: str, array: npt.NDArray[Any]) -> list[str]:
    """Return the entries of a string or integer array from a file as text."""
    if array.dtype.kind not in "SUiu":
        raise DataError(f"{where} must hold text or integers, not {array.dtype}")
    entries = array.reshape(-1).tolist()
    names = {entry: readable_name(where, entry) for entry in set(entries)}
    return [names[entry] for entry in entries]


def class_ids(where: str, labels: npt.NDArray[Any], class_names: Sequence[str]) -> Labels:
    """Return the class id of each label (n,) from a file: class ids, or names of classes."""
    if labels.dtype.kind in "US":
        position = {name: c for c, name in enumerate(class_names)}
        words = texts_of(where, labels)
        if unknown := sorted(set(words) - set(position)):
            raise DataError(f"{where} holds {unknown[0]!r}, which is not the name of a class")
        return np.array([position[word] for word in words], np.int64)
    if labels.dtype.kind not in "iu":
        raise DataError(f"{where} must be integers from 0, or class names, not {labels.dtype}")
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or highest >= len(class_names):
        raise DataError(f"{where} must go from 0 to {len(class_names) - 1}; they go from {lowest} to {highest}")
    return labels.astype(np.int64)
