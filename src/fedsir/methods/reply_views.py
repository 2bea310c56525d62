"""Looking at many replies without collecting them: they may be read from disk one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsir.methods.base import ClientId, Reply


class Joined(Mapping[ClientId, Reply]):
    """The replies of several asks as one mapping: those of the clients in `order`, in that order."""

    def __init__(self, order: Sequence[ClientId], *parts: Mapping[ClientId, Reply]) -> None:
        part_of = {client: part for part in parts for client in part}
        self._part_of = {client: part_of[client] for client in order if client in part_of}

    def __getitem__(self, client: ClientId) -> Reply:
        return self._part_of[client][client]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._part_of)

    def __len__(self) -> int:
        return len(self._part_of)


class FieldOf(Mapping[ClientId, Any]):
    """One field of every reply, such as its model."""

    def __init__(self, name: str, replies: Mapping[ClientId, Reply]) -> None:
        self._name = name
        self._replies = replies

    def __getitem__(self, client: ClientId) -> Any:
        return self._replies[client][self._name]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._replies)

    def __len__(self) -> int:
        return len(self._replies)
