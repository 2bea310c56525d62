"""What FedNoRo and FedELC share: a warm-up of all clients, a split by their losses, then rounds in two groups.

Clients' losses are comparable only under one model, the one after the warm-up. A client that was away then is assessed
under that same model when it is first seen, and the split is made anew with it. With full participation the split is
made once.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, TypeVar

from torch import Tensor, nn

from fedsir.data.shapes import Shape
from fedsir.methods.averaging import aggregation_shares, average_by_samples, average_by_shares, mean_loss
from fedsir.methods.base import Client, Federation, Method, ServerState, client_task
from fedsir.methods.baseline_settings import LossIdentificationConfig
from fedsir.methods.local_training import Batch, mean_loss_by_class, train_with, trained
from fedsir.methods.loss_split import split_by_losses
from fedsir.methods.replies import ClientId, Joined, Reply, Trained, Weights
from fedsir.stages.train import class_prior, la_loss, logit_adjustment

C = TypeVar("C", bound=LossIdentificationConfig)


@dataclass(frozen=True)
class LossIdentificationState(ServerState):
    """yardstick : the model after the warm-up, kept while somebody has not been assessed under it; else empty"""

    yardstick: Weights = field(default_factory=dict)


@dataclass(frozen=True)
class Losses(Reply):
    """How well a model fits a client's given labels.

    losses : mean loss of the samples of each class, in float64; NaN for a class without samples
    """

    losses: Annotated[Tensor, Shape("classes", has_gaps=True)]

    def fault(self) -> str | None:
        if bool(self.losses.isnan().all()):
            return "losses: there is none"
        return "losses: one is negative" if bool((self.losses < 0).any()) else None


class LossIdentification(Method[C, LossIdentificationState]):
    """A method with this first stage; it says how noisy clients train, in `ask_noisy`."""

    State = LossIdentificationState

    @abstractmethod
    def ask_noisy(
        self, t: int, noisy: Sequence[ClientId], model: Weights, fed: Federation
    ) -> Mapping[ClientId, Trained]:
        """Let the noisy clients train in round t; record what is worth knowing about it."""

    def round(self, t: int, state: LossIdentificationState, fed: Federation) -> LossIdentificationState:
        if t <= self.config.identify.after:
            replies = fed.ask(self.train_clean, fed.participants, model=state.model)
            fed.record(loss=mean_loss(replies))
            return LossIdentificationState(model=average_by_samples(replies) if replies else state.model)
        state = self.assess(state, fed)
        assert state.split is not None, "assess sets it"
        trusted = frozenset(state.split.clean)
        clean = [k for k in fed.participants if k in trusted]
        noisy = [k for k in fed.participants if k not in trusted]
        from_clean = fed.ask(self.train_clean, clean, model=state.model)
        from_noisy = self.ask_noisy(t, noisy, state.model, fed)
        both = Joined(fed.participants, from_clean, from_noisy)
        shares = aggregation_shares(both, state.split.clean, is_distance_aware=self.config.daagg.enabled)
        fed.record(
            loss=mean_loss(both), loss_clean=mean_loss(from_clean), loss_noisy=mean_loss(from_noisy), shares=shares
        )
        return replace(state, model=average_by_shares(both, shares)) if both else state

    def assess(self, state: LossIdentificationState, fed: Federation) -> LossIdentificationState:
        """Ask participants whose losses are not known yet, and split all whose are."""
        known: dict[ClientId, Sequence[float]] = {} if state.split is None else dict(state.split.statistics)
        newcomers = [k for k in fed.participants if k not in known]
        if state.split is not None and not newcomers:
            return state
        yardstick = state.yardstick or state.model
        replies = fed.ask(self.measure_losses, newcomers, model=yardstick)
        known |= {k: reply.losses.tolist() for k, reply in replies.items()}
        losses = {k: known[k] for k in fed.clients if k in known}
        reasons = {} if state.split is None else state.split.not_assessed
        missing = {k: fed.failures.get(k, reasons.get(k, "not seen yet")) for k in fed.clients if k not in losses}
        split, n_agreeing = split_by_losses(losses, missing)
        fed.record(assessed=len(losses), agreeing_fits=n_agreeing)
        return replace(state, split=split, yardstick=yardstick if missing else {})

    # ------------------------------------------------------------------ on the client

    @client_task
    def train_clean(self, client: Client, model: Weights) -> Trained:
        """Train on the given labels with logit adjustment; asked of all in the warm-up, of clean clients after it."""
        client.state.clear()  # a client that was called noisy before may hold corrections
        adjustment = self.adjustment(client)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return la_loss(module(batch.images), batch.labels, adjustment)

        module = client.module(model)
        return trained(client, module, train_with(self, client, module, loss_of))

    @client_task
    def measure_losses(self, client: Client, model: Weights) -> Losses:
        """Measure the mean loss of each class under the model of the warm-up; asked once of every client."""
        is_augmented = self.config.identify.images == "augmented"
        return Losses(mean_loss_by_class(client, client.module(model), is_augmented=is_augmented))

    def adjustment(self, client: Client) -> Tensor:
        """Return the logit adjustment m of this client's given labels, (C,)."""
        prior = class_prior(client.data.labels, client.data.n_classes)
        return logit_adjustment(prior, self.config.la.strength).to(client.device)
