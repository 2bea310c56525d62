"""Names for the array types of this package, arrays from whatever callers have, and a checksum over arrays."""

from __future__ import annotations

import hashlib
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedsir.errors import DataError

Images: TypeAlias = npt.NDArray[np.uint8]  # (n, channels, height, width), or whatever a docstring says
Labels: TypeAlias = npt.NDArray[np.int64]  # (n,) class ids
Index: TypeAlias = npt.NDArray[np.int64]  # (m,) positions of samples
Counts: TypeAlias = npt.NDArray[np.int64]  # (n_clients, n_classes) or (n_classes, n_classes)
Floats: TypeAlias = npt.NDArray[np.float64]
Names: TypeAlias = npt.NDArray[np.str_]  # (n,) client name of each sample


def as_array(what: str, values: Any) -> npt.NDArray[Any]:
    """Return a NumPy array of an array, a torch tensor (on any device), a pandas table or column, or a list."""
    if np.ma.is_masked(values):
        raise DataError(f"{what} have masked entries: leave these samples out")
    try:
        if hasattr(values, "detach"):
            values = values.detach().cpu()
            values = values.float() if str(values.dtype) == "torch.bfloat16" else values  # NumPy has no such type
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as problem:  # uneven rows, or a tensor without numbers
        raise DataError(f"{what} cannot be read as an array: {problem}") from None


def as_column(what: str, values: Any) -> npt.NDArray[Any]:
    """Return one entry per sample, (n,), also where the entries themselves are tuples."""
    if isinstance(values, list) and any(isinstance(entry, tuple) for entry in values):
        column = np.empty(len(values), object)
        column[:] = values
        return column
    return as_array(what, values)


def fingerprint(**parts: npt.NDArray[np.generic] | tuple[str, ...]) -> str:
    """Return the SHA-256, in hex, over named arrays (with type and shape) and tuples of names."""
    digest = hashlib.sha256()
    for name, part in parts.items():
        if isinstance(part, tuple):
            # The lengths keep ("ab",) and ("a", "b") apart.
            text = "".join(f"{len(word)}:{word}" for word in part)
            digest.update(f"{name} {len(part)} {text}".encode())
        else:
            digest.update(f"{name} {part.dtype.str} {part.shape} ".encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
