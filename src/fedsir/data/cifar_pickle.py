"""Read the pickles of CIFAR's python layout without running anything that is in them.

A pickle names functions to call. Here every name is refused but the few that rebuild a uint8 array, and those
are not numpy's own but the small stand-ins below. Callers check the file's checksum first all the same.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable

    from fedsir.data.arrays import Images


class _Dtype:
    """Stands for numpy.dtype; knows only uint8."""

    def __init__(self, code: str = "", *_: object) -> None:
        if code not in ("u1", "|u1", "uint8"):
            raise pickle.UnpicklingError(f"array of type {code!r} where uint8 belongs")

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment, which mean nothing for single bytes."""


class _Array:
    """Stands for numpy.ndarray while its pickle is read."""

    values: Images

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes | str]) -> None:
        _version, shape, dtype, is_fortran, raw = state
        if not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("an array without a type")
        # Python 2 wrote bytes as text, which arrives here decoded as latin-1.
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        self.values = np.frombuffer(data, np.uint8).reshape(shape, order="F" if is_fortran else "C")


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _encode(text: str, encoding: str) -> bytes:
    """Stand for _codecs.encode, by which Python 3 writes bytes in old protocols."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text in encoding {encoding!r}")
    return text.encode("latin-1")


_STAND_INS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("_codecs", "encode"): _encode,
}


class _BatchReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which CIFAR has no need of") from None


def read_batch(raw: bytes, label_key: str, file: object) -> tuple[Images, list[int]]:
    """Return the pixels (n, 3072) and the n labels of one pickled batch; ``file`` names it in errors."""
    try:
        content = _BatchReader(io.BytesIO(raw), encoding="latin1").load()
        pixels, labels = content["data"].values, content[label_key]
        is_fit = pixels.ndim == 2 and pixels.shape[1] == 3072 and len(labels) == len(pixels)
    except (
        *(pickle.UnpicklingError, EOFError, ValueError, TypeError),
        *(LookupError, AttributeError, OverflowError, ImportError),
    ) as problem:
        raise DataError(f"{file} is not a CIFAR batch and was not unpickled: {problem}") from None
    if not is_fit or not all(type(label) is int for label in labels):
        raise DataError(f"{file} does not hold images of 3072 bytes with one label each")
    return pixels, labels
