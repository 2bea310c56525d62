"""Replies of one `ask`, in federation order, in bounded memory: what does not fit waits on disk until it is read."""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from torch import Tensor

from fedsir.errors import RunFolderError
from fedsir.methods.replies import ClientId, Reply

if TYPE_CHECKING:
    from pathlib import Path

MEMORY = 64_000_000  # bytes of replies to keep decoded; the rest is read from disk, one at a time
R = TypeVar("R", bound=Reply)


class Replies(Mapping[ClientId, R], Generic[R]):
    """A mapping client → reply. Of replies beyond `memory` bytes, arrays are read from disk each time.

    The file behind them, in `folder`, has no name: it is gone when this object or its process is, however that ends.

    Parameters
    ----------
    read : turns a reply's bytes into the reply
    """

    def __init__(
        self,
        order: Sequence[ClientId],
        read: Callable[[bytes], R],
        memory: int = MEMORY,
        folder: Path | None = None,
    ) -> None:
        self._order, self._read, self._folder = order, read, folder
        self._left = memory
        self._replies: dict[ClientId, R] = {}
        self._file: IO[bytes] | None = None

    def put(self, client: ClientId, data: bytes, reply: R) -> None:
        """Take over a reply, given as bytes and read."""
        if len(data) <= self._left:
            self._left -= len(data)
            self._replies[client] = reply
            return
        try:
            file, start = self._append(data)
        except OSError as problem:
            where = "the folder for temporary files" if self._folder is None else str(self._folder)
            raise RunFolderError(
                f"Could not keep a client's reply in {where}: {problem.strerror}. Once that is put right, the same "
                "command goes on from the last checkpoint."
            ) from None

        # A reply must hold neither its bytes nor this object, which would then outlive its round as a cycle.
        size, read = len(data), self._read

        def read_again() -> R:
            file.seek(start)
            return read(file.read(size))

        self._replies[client] = _on_disk(reply, read_again)

    def _append(self, data: bytes) -> tuple[IO[bytes], int]:
        """Return the file that now ends with `data`, and where they begin."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix=".replies-", dir=self._folder)  # noqa: SIM115 - lives as long as this
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self._file.flush()
        return self._file, start

    def __getitem__(self, client: ClientId) -> R:
        return self._replies[client]

    def __iter__(self) -> Iterator[ClientId]:
        return (client for client in self._order if client in self._replies)

    def __len__(self) -> int:
        return len(self._replies)


def _on_disk(reply: R, read: Callable[[], R]) -> R:
    """Return a reply of the same type whose numbers are at hand; what has arrays in it is read when asked for."""
    values = {field.name: getattr(reply, field.name) for field in dataclasses.fields(reply)}
    heavy = tuple(name for name, value in values.items() if _has_arrays(value))
    waiting: R = object.__new__(_waiting_type(type(reply), heavy))  # type: ignore[arg-type]
    waiting.__dict__.update({name: value for name, value in values.items() if name not in heavy}, _read=read)
    return waiting


@lru_cache
def _waiting_type(declared: type[Any], heavy: tuple[str, ...]) -> type[Any]:
    """Return a subclass that reads some fields from disk each time; such a reply is never changed or sent on."""

    def reader(name: str) -> property:
        return property(lambda self: getattr(self._read(), name))

    return type(f"{declared.__name__}OnDisk", (declared,), {name: reader(name) for name in heavy})


def _has_arrays(node: Any) -> bool:
    if isinstance(node, Tensor | np.ndarray):
        return True
    if dataclasses.is_dataclass(node):
        return any(_has_arrays(getattr(node, field.name)) for field in dataclasses.fields(node))
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return any(_has_arrays(child) for child in children)
