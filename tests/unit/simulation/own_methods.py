"""Methods as a user writes them, in a module that worker processes can import."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedsir.methods.base import Client, Federation, ServerState, client_task
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.local_training import cross_entropy, train_with, trained
from fedsir.methods.replies import Reply, Trained, Weights


@dataclass(frozen=True)
class Visits(Reply):
    n: int


class Stumbling(FedAvg):
    """FedAvg whose clients count rounds, and which can be told to fail in one, after clients have counted it."""

    name = "stumbling"
    fails_in: int | None = None

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        visits = fed.ask(self.visit, fed.participants)
        fed.record(visits=[reply.n for reply in visits.values()])
        if t == Stumbling.fails_in:
            raise KeyboardInterrupt
        return super().round(t, state, fed)

    @client_task
    def visit(self, client: Client) -> Visits:
        client.state["visits"] = client.state.get("visits", torch.tensor(0)) + 1
        return Visits(int(client.state["visits"]))


class Editing(FedAvg):
    """FedAvg that writes into what it is handed."""

    name = "editing"

    @client_task
    def train(self, client: Client, model: Weights) -> Trained:
        client.data.labels.fill_(3)
        client.data.images.zero_()
        module = client.module(model)
        return trained(client, module, train_with(self, client, module, cross_entropy))


class WithRMSprop(FedAvg):
    """FedAvg with an optimiser of its own."""

    name = "with_rmsprop"

    def optimizer(self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        return torch.optim.RMSprop(parameters, lr=lr, weight_decay=weight_decay)


class Disturbing(FedAvg):
    """FedAvg that changes torch's global settings and draws from its global generator; it may fail then."""

    name = "disturbing"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(99)
        if t == 2:
            raise ValueError("enough")
        torch.set_default_dtype(torch.float32)
        return super().round(t, state, fed)
