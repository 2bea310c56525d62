"""FedProx (Li et al., MLSys 2020): FedAvg whose clients are held near the global model they started from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from torch import Tensor, nn

from fedsir.methods.base import Client, client_task
from fedsir.methods.baseline_settings import FedProxConfig
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.local_training import Batch, cross_entropy, train_with, trained
from fedsir.methods.replies import Trained, Weights


class FedProx(FedAvg):
    name = "fedprox"
    Config = FedProxConfig
    config: FedProxConfig

    @client_task
    def train(self, client: Client, model: Weights) -> Trained:
        """Train on the given labels near the global model; asked of the participants of every round."""
        module = client.module(model)
        start = [parameter.detach().clone() for parameter in module.parameters()]

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            loss = cross_entropy(module, batch)
            return loss + proximal_term(
                module.parameters(), start, weight=self.config.proximal_weight, norm=self.config.proximal_norm
            )

        return trained(client, module, train_with(self, client, module, loss_of))


def proximal_term(
    parameters: Iterable[Tensor], start: Iterable[Tensor], *, weight: float, norm: Literal["squared", "plain"]
) -> Tensor | float:
    """Return μ / 2 · Σ over tensors of ‖w - w_g‖², or of ‖w - w_g‖, whose gradient is taken as 0 at 0."""
    moves = (now - before for now, before in zip(parameters, start, strict=True))
    return weight / 2 * sum(move.square().sum() if norm == "squared" else move.norm() for move in moves)
