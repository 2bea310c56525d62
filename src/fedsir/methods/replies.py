"""What clients send back: declared types, which the engine checks before a method sees them.

A reply is a frozen dataclass. Its fields say what may be in it: numbers, strings, `Weights`, arrays and tensors with a
`Shape`, lists and dicts of these, and other such dataclasses. `X | None` may be left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

MODEL = object()  # marks a field in which the engine expects names, types and shapes of the model that was sent
STAYS = "stays where it is None"  # in a field's metadata: a reply without it has the bytes it had before there was one
if TYPE_CHECKING:
    from torch import Tensor

    Weights = dict[str, Tensor]
else:
    Weights = Annotated[dict, MODEL]

ClientId = str
R = TypeVar("R", covariant=True)


@dataclass(frozen=True)
class Reply:
    """Base of all replies. The docstring of a subclass has a line `field : meaning` for each of its fields."""

    def fault(self) -> str | None:
        """Return what is wrong with values whose types and shapes are right; None if nothing is."""
        return None


@dataclass(frozen=True)
class Trained(Reply):
    """A client's model after local training.

    model : its weights
    n_samples : how many samples it was trained on
    loss : mean training loss per sample; none where the settings keep it back
    """

    model: Weights
    n_samples: int
    loss: float | None


class Joined(Mapping[ClientId, R]):
    """The replies of several asks as one mapping: those of the clients in `order`, in that order.

    Nothing is collected: replies may wait on disk.
    """

    def __init__(self, order: Sequence[ClientId], *parts: Mapping[ClientId, R]) -> None:
        part_of = {client: part for part in parts for client in part}
        self._part_of = {client: part_of[client] for client in order if client in part_of}

    def __getitem__(self, client: ClientId) -> R:
        return self._part_of[client][client]

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._part_of)

    def __len__(self) -> int:
        return len(self._part_of)


class FieldOf(Mapping[ClientId, Any], Generic[R]):
    """One field of every reply, such as its model, read when it is asked for."""

    def __init__(self, name: str, replies: Mapping[ClientId, R]) -> None:
        self._name, self._replies = name, replies

    def __getitem__(self, client: ClientId) -> Any:
        return getattr(self._replies[client], self._name)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self._replies)

    def __len__(self) -> int:
        return len(self._replies)
