"""Replies of one `ask`, in federation order, in bounded memory: what does not fit waits on disk until it is read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from torch import Tensor

from fedsir.engines.wire import decode
from fedsir.errors import RunFolderError
from fedsir.methods.base import ClientId, Reply

if TYPE_CHECKING:
    from pathlib import Path

MEMORY = 64_000_000  # bytes of replies to keep decoded; the rest is read from disk, one at a time


class Replies(Mapping[ClientId, Reply]):
    """A mapping client → reply. Of replies beyond `memory` bytes, tensors are read from disk each time.

    The file behind them, in `folder`, has no name: it is gone when this object or its process is, however that ends.
    """

    def __init__(self, order: Sequence[ClientId], memory: int = MEMORY, folder: Path | None = None) -> None:
        self._order = order
        self._folder = folder
        self._left = memory
        self._replies: dict[ClientId, Reply] = {}
        self._file: IO[bytes] | None = None

    def put(self, client: ClientId, data: bytes, reply: dict[str, Any]) -> None:
        """Take over a reply, given as bytes and decoded."""
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

        size = len(data)  # `read` must not hold the bytes themselves

        def read() -> dict[str, Any]:
            file.seek(start)
            whole: dict[str, Any] = decode(file.read(size))
            return whole

        self._replies[client] = _OnDisk(reply, read)

    def _append(self, data: bytes) -> tuple[IO[bytes], int]:
        """Return the file that now ends with `data`, and where they begin."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix=".replies-", dir=self._folder)  # noqa: SIM115 - lives as long as this
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self._file.flush()
        return self._file, start

    def __getitem__(self, client: ClientId) -> Reply:
        return self._replies[client]

    def __iter__(self) -> Iterator[ClientId]:
        return (client for client in self._order if client in self._replies)

    def __len__(self) -> int:
        return len(self._replies)


class _OnDisk(Mapping[str, Any]):
    """A reply whose numbers are at hand; what has tensors in it is read when asked for, and not kept."""

    def __init__(self, reply: dict[str, Any], read: Callable[[], dict[str, Any]]) -> None:
        self._at_hand = {key: value for key, value in reply.items() if not _has_tensors(value)}
        self._keys = tuple(reply)
        self._read = read

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._at_hand[key] if key in self._at_hand else self._read()[key]

    def __contains__(self, key: object) -> bool:  # the inherited one reads the value to find out
        return key in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def _has_tensors(node: Any) -> bool:
    if isinstance(node, Tensor):
        return True
    children = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return any(_has_tensors(child) for child in children)
