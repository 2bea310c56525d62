"""The contract of an engine: calls in, answers out, and what clients remember in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedsir.methods.replies import ClientId


@dataclass(frozen=True)
class Call:
    """One client's part of an `ask`; `own` is the payload for this client alone."""

    client: ClientId
    task: str
    round: int
    own: bytes


@dataclass(frozen=True)
class PredictCall:
    """A slice of the test images to predict with the model that is the common payload; no client takes part."""

    start: int
    stop: int


@dataclass(frozen=True)
class ServerCall:
    """A piece of the server's own work that takes a model to run; no client takes part."""

    key: str
    task: str
    round: int
    own: bytes


AnyCall = Call | PredictCall | ServerCall


@dataclass(frozen=True)
class Answer:
    """reply and state as bytes, or the reason of a failure; seconds is the client's computing time."""

    reply: bytes | None
    state: bytes | None
    seconds: float
    failure: str | None = None


class Engine(Protocol):
    """Runs calls somewhere, and owns what clients remember between them."""

    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        """Yield each call with its answer, in any order; `common` is the payload for all."""

    def keep(self, call: Call, answer: Answer) -> None:
        """Take note that the server could use an answer: what the client remembers now counts."""

    def client_states(self) -> dict[ClientId, bytes]:
        """Return what clients remember, of those that remember anything; none of clients that keep it to themselves."""

    def restore(self, states: Mapping[ClientId, bytes]) -> None:
        """Let clients remember what they did when a checkpoint was written."""

    def close(self) -> None:
        """Give back processes and memory."""
