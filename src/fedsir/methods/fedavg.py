"""FedAvg (McMahan et al., 2017): train on the given labels, average by sample count. The baseline of baselines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsir import methods, stages
from fedsir.methods.base import Client, Federation, Method, Reply, ServerState, Weights, client_task
from fedsir.methods.reply_views import FieldOf

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from fedsir.stages.train import Distance


class FedAvg(Method):
    name = "fedavg"
    summary = "average of all clients by sample count; trusts every label"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        del t  # every round is alike
        replies = fed.ask("train", fed.participants, model=state.model)
        fed.record(loss=mean_loss(replies))
        return ServerState(model=average_by_samples(replies) if replies else state.model)

    @client_task
    def train(self, client: Client, model: Weights) -> Reply:
        module = client.module(model)
        loss = methods.local_training.train_with(client, module, methods.local_training.cross_entropy, self.config)
        return methods.local_training.trained_reply(client, module, loss)


def average_by_samples(replies: Mapping[str, Reply]) -> Weights:
    """Return the mean of the replies' models, weighted by sample count."""
    n_samples = [reply["n_samples"] for reply in replies.values()]
    return stages.train.average_models((reply["model"] for reply in replies.values()), n_samples)


def aggregation_shares(
    replies: Mapping[str, Reply], clean: Collection[str], *, is_distance_aware: bool, distance: Distance = "normalised"
) -> dict[str, float]:
    """Return how much each reply's model counts: by samples alone, or noisy ones also by distance (DaAgg)."""
    n_samples = {k: reply["n_samples"] for k, reply in replies.items()}
    if not is_distance_aware:
        total = sum(n_samples.values())
        return {k: n / total for k, n in n_samples.items()}
    return stages.train.daagg_weights(FieldOf("model", replies), n_samples, clean, distance)


def mean_loss(replies: Mapping[str, Reply]) -> float | None:
    """Return the mean training loss per sample over the replies; None without any."""
    n = sum(reply["n_samples"] for reply in replies.values())
    return sum(reply["loss"] * reply["n_samples"] for reply in replies.values()) / n if n else None
