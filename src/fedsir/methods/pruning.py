"""Pruning (a baseline of Gholami et al., 2026): FedSIR's Stage I, then FedAvg over the clean clients alone."""

from __future__ import annotations

from dataclasses import replace

from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Client, Federation, ServerState, client_task
from fedsir.methods.fedsir_settings import SpectralConfig
from fedsir.methods.local_training import cross_entropy, train_with, trained
from fedsir.methods.replies import Joined, Trained, Weights
from fedsir.methods.spectral_identification import Identified, SpectralIdentification


class Pruning(SpectralIdentification[SpectralConfig, ServerState]):
    name = "pruning"
    Config = SpectralConfig

    def start(self, fed: Federation, model: Weights) -> ServerState:
        """Stage I; training then begins from the initial model, not from what Stage I has trained."""
        split, replies = self.find_noisy_clients(fed, model)
        fed.record(loss=mean_loss(Joined(split.clean, replies)))
        return ServerState(model=model, split=split)

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        del t  # every round is alike
        assert state.split is not None, "Stage I sets it"
        trusted = frozenset(state.split.clean)
        replies = fed.ask(self.train, [k for k in fed.participants if k in trusted], model=state.model)
        fed.record(loss=mean_loss(replies))
        return ServerState(model=average_by_samples(replies) if replies else state.model, split=state.split)

    # ------------------------------------------------------------------ on the client

    @client_task
    def identify(self, client: Client, model: Weights) -> Identified:
        """Stage I, asked of everybody before round 1; the trained model leaves only if split = rates needs it."""
        found = super().identify(client, model)
        return found if self.config.identify.split == "rates" else replace(found, model=None)

    @client_task
    def train(self, client: Client, model: Weights) -> Trained:
        """Train on the given labels; asked of the clean participants of every round."""
        module = client.module(model)
        return trained(client, module, train_with(self, client, module, cross_entropy))
