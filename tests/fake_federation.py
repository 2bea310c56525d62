"""A federation for tests of a method's server half: it answers what a test wants and notes what it was asked."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from fedsir.methods.base import DROPPED_OUT
from fedsir.randomness import KeyedRandom


def weights(value: float) -> dict[str, torch.Tensor]:
    """Return a model of one number."""
    return {"w": torch.tensor([value])}


def trained(value: float, n_samples: int, loss: float = 1.0) -> dict[str, Any]:
    """Return what a client sends after training."""
    return {"model": weights(value), "n_samples": n_samples, "loss": loss}


@dataclass
class FakeFederation:
    """Answers by `reply(task, client)` and keeps every payload."""

    clients: Sequence[str]
    reply: Callable[[str, str], dict[str, Any]]
    absent: tuple[str, ...] = ()
    participants: Sequence[str] = ()
    failures: dict[str, str] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    random: KeyedRandom = field(default_factory=lambda: KeyedRandom(0))

    def __post_init__(self) -> None:
        self.participants = self.participants or self.clients

    def ask(
        self, task: str, clients: Iterable[str], *, each: Mapping[str, Any] | None = None, **payload: Any
    ) -> dict[str, Any]:
        present = [client for client in clients if client not in self.absent]
        self.failures |= {client: DROPPED_OUT for client in clients if client in self.absent}
        self.asked[task] = {"clients": present, **payload}
        return {client: self.reply(task, client) for client in present}

    def reject(self, client: str, reason: str) -> None:
        self.failures[client] = reason

    def record(self, **values: Any) -> None:
        self.values.update(values)


@dataclass
class Diary(FakeFederation):
    """A federation that keeps every ask of somebody, in order: task, clients, what each got, what all got."""

    pages: list[tuple[str, list[str], dict[str, Any], dict[str, Any]]] = field(default_factory=list)

    def ask(
        self, task: str, clients: Iterable[str], *, each: Mapping[str, Any] | None = None, **payload: Any
    ) -> dict[str, Any]:
        asked = list(clients)
        if asked:
            self.pages.append((task, asked, dict(each or {}), payload))
        return super().ask(task, asked, each=each, **payload)
