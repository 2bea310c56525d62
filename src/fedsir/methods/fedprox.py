"""FedProx (Li et al., MLSys 2020): FedAvg whose clients are held near the global model they started from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from fedsir import methods
from fedsir.methods.base import Client, MethodConfig, Reply, Weights, client_task
from fedsir.methods.fedavg import FedAvg

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch


Norm = Literal["squared", "plain"]


class FedProxConfig(MethodConfig):
    proximal_weight: float = Field(0.2, ge=0, description="how strongly clients are held back (μ); 0 = FedAvg")
    proximal_norm: Norm = Field(
        "squared", description="½ μ ‖w - w_g‖² over all parameters, or ½ μ Σ ‖w - w_g‖ tensor by tensor"
    )


class FedProx(FedAvg):
    name = "fedprox"
    summary = "FedAvg with clients held near the global model; trusts every label"
    Config = FedProxConfig
    config: FedProxConfig

    def equivalent_epochs(self, rounds: int) -> float:
        return 1.05 * super().equivalent_epochs(rounds)

    @client_task
    def train(self, client: Client, model: Weights) -> Reply:
        module = client.module(model)
        start = [parameter.detach().clone() for parameter in module.parameters()]

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            loss = methods.local_training.cross_entropy(module, batch)
            return loss + proximal_term(
                module.parameters(), start, weight=self.config.proximal_weight, norm=self.config.proximal_norm
            )

        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        return methods.local_training.trained_reply(client, module, loss)


def proximal_term(
    parameters: Iterable[Tensor], start: Iterable[Tensor], *, weight: float, norm: Norm
) -> Tensor | float:
    """Return μ / 2 · Σ over tensors of ‖w - w_g‖², or of ‖w - w_g‖, whose gradient is taken as 0 at 0."""
    moves = (now - before for now, before in zip(parameters, start, strict=True))
    return weight / 2 * sum(move.square().sum() if norm == "squared" else move.norm() for move in moves)
