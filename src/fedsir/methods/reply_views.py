"""Looking at many replies without collecting them: they may be read from disk one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedsir.methods.base import ClientId, Reply


class Joined(Mapping[ClientId, Reply]):
    """The replies of several asks as one mapping, in the given order of clients."""

    def __init__(self, order: Sequence[ClientId], *parts: Mapping[ClientId, Reply]) -> None:
        self._part_of = {client: part for part in parts for client in part}
        self._order = [client for client in order if client in self._part_of]

    def __getitem__(self, client: ClientId) -> Reply:
        return self._part_of[client][client]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)


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
