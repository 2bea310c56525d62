"""Arrays in NumPy's file format, from files that may lie: nothing is unpickled, and no claim is believed unchecked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

PIECE = 2**24  # bytes read at once


@dataclass(frozen=True)
class StoredArray:
    """An array whose header has been read and whose content has not."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_fortran: bool
    stream: IO[bytes]

    def read(self) -> npt.NDArray[Any]:
        """Return the array."""
        flat = np.frombuffer(self._bytes(math.prod(self.shape) * self.dtype.itemsize), self.dtype)
        return flat.reshape(self.shape, order="F" if self.is_fortran else "C")

    def pieces(self) -> Iterator[npt.NDArray[Any]]:
        """Yield the array piece by piece along its first axis."""
        if self.is_fortran:  # the first axis varies fastest: nothing is whole before all is read
            yield self.read()
            return
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        step = max(1, PIECE // max(1, row))
        for start in range(0, self.shape[0], step):
            n = min(step, self.shape[0] - start)
            yield np.frombuffer(self._bytes(n * row), self.dtype).reshape(n, *self.shape[1:])

    def _bytes(self, n: int) -> bytes:
        content = self.stream.read(n)
        if len(content) < n:
            raise ValueError("it ends too early")
        return content


def open_array(stream: IO[bytes], n_bytes: int) -> StoredArray:
    """Return the array at the start of a stream of ``n_bytes``; a `ValueError` says what is wrong with its header."""
    version = np.lib.format.read_magic(stream)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError("it is in a version of the npy format that only structured arrays need")
    try:
        shape, is_fortran, dtype = readers[version](stream)
    except ValueError as problem:
        raise ValueError(f"its header is damaged ({str(problem)[:80]})") from None
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are never unpickled; save plain numbers or text")
    claimed, found = math.prod(shape) * dtype.itemsize, n_bytes - stream.tell()
    if min(shape, default=0) < 0 or claimed != found:
        raise ValueError(f"its header claims another size than the {found:,} bytes that follow")
    return StoredArray(shape, dtype, is_fortran, stream)
