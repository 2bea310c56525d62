"""FedAvg (McMahan et al., 2017): train on the given labels, average by sample count. The baseline of baselines."""

from __future__ import annotations

from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Client, Federation, Method, ServerState, client_task
from fedsir.methods.local_training import cross_entropy, train_with, trained
from fedsir.methods.replies import Trained, Weights
from fedsir.methods.settings import MethodConfig


class FedAvg(Method[MethodConfig, ServerState]):
    name = "fedavg"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        del t  # every round is alike
        replies = fed.ask(self.train, fed.participants, model=state.model)
        fed.record(loss=mean_loss(replies))
        return ServerState(model=average_by_samples(replies) if replies else state.model)

    @client_task
    def train(self, client: Client, model: Weights) -> Trained:
        """Train on the given labels; asked of the participants of every round."""
        module = client.module(model)
        return trained(client, module, train_with(self, client, module, cross_entropy))
