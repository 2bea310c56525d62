"""Replies of one `ask`, in federation order, in bounded memory: what does not fit waits on disk until it is read."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from torch import Tensor

from fedsir.engines.wire import decode
from fedsir.methods.base import ClientId, Reply

MEMORY = 256_000_000  # bytes of replies to keep decoded; the rest is read from disk, one at a time


class Replies(Mapping[ClientId, Reply]):
    """A mapping client → reply. Of replies beyond `memory` bytes, tensors are read from disk each time.

    The file behind them has no name: it is gone when this object or its process is, however that ends.
    """

    def __init__(self, order: Sequence[ClientId], memory: int = MEMORY) -> None:
        self._order = order
        self._left = memory
        self._replies: dict[ClientId, Reply] = {}
        self._file: IO[bytes] | None = None

    def put(self, client: ClientId, data: bytes, reply: dict[str, Any]) -> None:
        """Take over a reply, given as bytes and decoded."""
        if len(data) <= self._left:
            self._left -= len(data)
            self._replies[client] = reply
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="fedsir-replies-")  # noqa: SIM115 - lives as long as this
        file, start = self._file, self._file.seek(0, os.SEEK_END)
        file.write(data)

        def read() -> dict[str, Any]:
            file.seek(start)
            whole: dict[str, Any] = decode(file.read(len(data)))
            return whole

        self._replies[client] = _OnDisk(reply, read)

    def __getitem__(self, client: ClientId) -> Reply:
        return self._replies[client]

    def __iter__(self) -> Iterator[ClientId]:
        return (client for client in self._order if client in self._replies)

    def __len__(self) -> int:
        return len(self._replies)


class _OnDisk(Mapping[str, Any]):
    """A reply whose numbers are at hand and whose tensors are read when asked for, and not kept."""

    def __init__(self, reply: dict[str, Any], read: Callable[[], dict[str, Any]]) -> None:
        self._at_hand = {key: value for key, value in reply.items() if not isinstance(value, dict | list | Tensor)}
        self._keys = tuple(reply)
        self._read = read

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return self._at_hand[key] if key in self._at_hand else self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)
