"""Pruning (a baseline of Gholami et al., 2026): FedSIR's Stage I, then FedAvg over the clean clients alone."""

from __future__ import annotations

from fedsir.methods.base import Client, Federation, MethodConfig, Reply, ServerState, Weights, client_task
from fedsir.methods.fedavg import FedAvg, average_by_samples, mean_loss
from fedsir.methods.spectral_identification import Identify, SpectralIdentification
from fedsir.methods.workload import Size, Work


class PruningConfig(MethodConfig):
    identify: Identify = Identify()


class Pruning(SpectralIdentification):
    name = "pruning"
    summary = "finds noisy clients by their class spectra and leaves them out; FedAvg over the rest"
    Config = PruningConfig
    config: PruningConfig

    def start(self, fed: Federation, model: Weights) -> ServerState:
        """Stage I; training then begins from the initial model, not from what Stage I has trained."""
        split, replies = self.find_noisy_clients(fed, model)
        fed.record(loss=mean_loss({k: replies[k] for k in split.clean if "loss" in replies[k]}))
        return ServerState(model=model, split=split)

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        del t  # every round is alike
        assert state.split is not None, "Stage I sets it"
        trusted = frozenset(state.split.clean)
        replies = fed.ask("train", [k for k in fed.participants if k in trusted], model=state.model)
        fed.record(loss=mean_loss(replies))
        return ServerState(model=average_by_samples(replies) if replies else state.model, split=state.split)

    def work(self, size: Size) -> list[Work]:
        start, rounds = super().work(size)
        half = Work(rounds.images / 2, rounds.calls / 2, max(1, rounds.at_once // 2))  # say, of the clients are clean
        return [start, half]

    # ------------------------------------------------------------------ on the client

    @client_task
    def identify(self, client: Client, model: Weights) -> Reply:
        """Stage I, keeping the trained model: nobody needs it."""
        reply = super().identify(client, model)
        return {name: value for name, value in reply.items() if name != "model"}

    train = FedAvg.train
