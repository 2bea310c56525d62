"""What methods do with trained models: average them by samples or by distance, and say how training went."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from fedsir.methods.replies import ClientId, FieldOf, Trained, Weights
from fedsir.stages.train import Distance, average_models, daagg_weights


def average_by_samples(replies: Mapping[ClientId, Trained]) -> Weights:
    """Return the mean of the replies' models, weighted by sample count."""
    n_samples = [reply.n_samples for reply in replies.values()]
    return average_models((reply.model for reply in replies.values()), n_samples)


def average_by_shares(replies: Mapping[ClientId, Trained], shares: Mapping[ClientId, float]) -> Weights:
    """Return the mean of the replies' models, weighted by each client's share."""
    return average_models((reply.model for reply in replies.values()), [shares[k] for k in replies])


def aggregation_shares(
    replies: Mapping[ClientId, Trained],
    clean: Collection[ClientId],
    *,
    is_distance_aware: bool,
    distance: Distance = "normalised",
) -> dict[ClientId, float]:
    """Return how much each reply's model counts: by samples alone, or noisy ones also by distance (DaAgg)."""
    n_samples = {k: reply.n_samples for k, reply in replies.items()}
    if not is_distance_aware:
        total = sum(n_samples.values())
        return {k: n / total for k, n in n_samples.items()}
    return daagg_weights(FieldOf("model", replies), n_samples, clean, distance)


class WithLoss(Protocol):
    """A reply that says how training went; `loss` is None where there was none."""

    @property
    def n_samples(self) -> int: ...

    @property
    def loss(self) -> float | None: ...


def mean_loss(replies: Mapping[ClientId, WithLoss]) -> float | None:
    """Return the mean training loss per sample over the replies; None without any."""
    known = [(reply.loss, reply.n_samples) for reply in replies.values() if reply.loss is not None]
    n = sum(n_samples for _, n_samples in known)
    return sum(loss * n_samples for loss, n_samples in known) / n if n else None
