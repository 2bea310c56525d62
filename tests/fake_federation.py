"""A federation for tests of a method's server half: it answers what a test wants and notes what it was asked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedsir.methods.base import DROPPED_OUT, Payload
from fedsir.methods.replies import Reply, Trained
from fedsir.randomness import KeyedRandom


def weights(value: float) -> dict[str, torch.Tensor]:
    """Return a model of one number."""
    return {"w": torch.tensor([value])}


def trained(value: float, n_samples: int, loss: float = 1.0) -> Trained:
    """Return what a client sends after training."""
    return Trained(weights(value), n_samples, loss)


@dataclass(frozen=True)
class Page:
    """One ask of somebody: the task, who was asked, what each got, and what all got."""

    task: str
    clients: list[str]
    each: dict[str, Payload]
    payload: Payload


@dataclass
class FakeFederation:
    """Answers by `reply(task, client)` and keeps every ask in `pages`; server tasks are answered by key."""

    clients: Sequence[str]
    reply: Callable[[str, str], Any]
    absent: tuple[str, ...] = ()
    participants: Sequence[str] = ()
    failures: dict[str, str] = field(default_factory=dict)
    pages: list[Page] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    random: KeyedRandom = field(default_factory=lambda: KeyedRandom(0))

    def __post_init__(self) -> None:
        self.participants = self.participants or self.clients

    @property
    def asked(self) -> dict[str, Page]:
        """The last ask of each task."""
        return {page.task: page for page in self.pages}

    def ask(
        self, task: Callable[..., Reply], clients: Iterable[str], *, each: Any = None, **payload: Any
    ) -> dict[str, Any]:
        wanted = list(clients)
        present = [client for client in wanted if client not in self.absent]
        self.failures |= {client: DROPPED_OUT for client in wanted if client in self.absent}
        if wanted:
            self.pages.append(Page(task.__name__, present, dict(each or {}), payload))
        return {client: self.reply(task.__name__, client) for client in present}

    def compute(
        self, task: Callable[..., Reply], each: Mapping[str, Payload] | None = None, **payload: Any
    ) -> dict[str, Any]:
        own = {"": {}} if each is None else dict(each)
        self.pages.append(Page(task.__name__, list(own), own, payload))
        return {key: self.reply(task.__name__, key) for key in own}

    def reject(self, client: str, reason: str) -> None:
        self.failures[client] = reason

    def record(self, **values: Any) -> None:
        self.values.update(values)
