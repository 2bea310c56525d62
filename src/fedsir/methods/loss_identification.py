"""What FedNoRo and FedELC share: a warm-up of all clients, a split by their losses, then rounds in two groups.

Clients' losses are comparable only under one model, the one after the warm-up. A client that was away then is assessed
under that same model when it is first seen, and the split is made anew with it. With full participation the split is
made once.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from fedsir import methods, stages
from fedsir.methods.base import (
    Client,
    ClientId,
    Federation,
    Method,
    MethodConfig,
    Reply,
    ServerState,
    Settings,
    Weights,
    client_task,
)
from fedsir.methods.fedavg import aggregation_shares, average_by_samples, mean_loss
from fedsir.methods.loss_split import split_by_losses
from fedsir.methods.reply_views import FieldOf, Joined

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch


class Identify(Settings):
    """When and how clients are told apart."""

    after: int | float | None = Field(
        None,
        ge=0,
        description="rounds of warm-up before it (s₁), below 1 as a share; per 100 rounds 10 in FedNoRo, 20 in FedELC",
    )
    images: Literal["augmented", "plain"] = Field("augmented", description="images behind the losses")

    @field_validator("after")
    @classmethod
    def _is_whole_or_a_share(cls, after: float | None) -> float | None:
        if after is not None and after >= 1 and not float(after).is_integer():
            raise ValueError("must be a whole number of rounds, or a share of them below 1")
        return after


class LogitAdjustment(Settings):
    """Logit adjustment of clients' cross-entropy."""

    strength: float = Field(1.0, ge=0, description="τ of the adjustment; 0 = plain cross-entropy")


class DistanceAware(Settings):
    """Distance-aware aggregation after the warm-up."""

    enabled: bool = Field(True, description="ablation switch; off = weights by sample count")


class LossIdentificationConfig(MethodConfig):
    warm_up_share: ClassVar[float]
    identify: Identify = Identify()
    la: LogitAdjustment = LogitAdjustment()
    daagg: DistanceAware = DistanceAware()

    def scaled_to(self, rounds: int) -> Self:
        after = self.warm_up_share if self.identify.after is None else self.identify.after
        after = max(1, round(after * rounds)) if 0 < after < 1 else int(after)
        return self.model_copy(update={"identify": self.identify.model_copy(update={"after": after})})


@dataclass(frozen=True)
class LossIdentificationState(ServerState):
    """yardstick : the model after the warm-up, kept while somebody has not been assessed under it; else empty"""

    yardstick: Weights = field(default_factory=dict)


class LossIdentification(Method):
    """A method with this first stage; it says how noisy clients train, in `ask_noisy`."""

    State = LossIdentificationState

    @abstractmethod
    def ask_noisy(self, t: int, noisy: Sequence[ClientId], model: Weights, fed: Federation) -> Mapping[ClientId, Reply]:
        """Let the noisy clients train in round t; record what is worth knowing about it."""

    def round(self, t: int, state: LossIdentificationState, fed: Federation) -> LossIdentificationState:
        if t <= self.config.identify.after:
            replies = fed.ask("train_clean", fed.participants, model=state.model)
            fed.record(loss=mean_loss(replies))
            return LossIdentificationState(model=average_by_samples(replies) if replies else state.model)
        state = self.assess(state, fed)
        assert state.split is not None, "assess sets it"
        trusted = frozenset(state.split.clean)
        clean = [k for k in fed.participants if k in trusted]
        noisy = [k for k in fed.participants if k not in trusted]
        from_clean = fed.ask("train_clean", clean, model=state.model)
        from_noisy = self.ask_noisy(t, noisy, state.model, fed)
        both = Joined(fed.participants, from_clean, from_noisy)
        shares = aggregation_shares(both, state.split.clean, is_distance_aware=self.config.daagg.enabled)
        fed.record(
            loss=mean_loss(both), loss_clean=mean_loss(from_clean), loss_noisy=mean_loss(from_noisy), shares=shares
        )
        if not both:
            return state
        return replace(state, model=stages.train.average_models(FieldOf("model", both).values(), list(shares.values())))

    def assess(self, state: LossIdentificationState, fed: Federation) -> LossIdentificationState:
        """Ask participants who have not told their losses yet, and split all who have."""
        told: dict[ClientId, Sequence[float]] = {} if state.split is None else dict(state.split.statistics)
        newcomers = [k for k in fed.participants if k not in told]
        if state.split is not None and not newcomers:
            return state
        yardstick = state.yardstick or state.model
        replies = fed.ask("measure_losses", newcomers, model=yardstick)
        losses, faults = usable_losses({k: reply["losses"] for k, reply in replies.items()}, told)
        for k, fault in faults.items():
            fed.reject(k, f"its losses are unusable: {fault}")
        told = {k: losses[k] if k in losses else told[k] for k in fed.clients if k in losses or k in told}
        reasons = {} if state.split is None else state.split.not_assessed
        unheard = {k: fed.failures.get(k, reasons.get(k, "not seen yet")) for k in fed.clients if k not in told}
        split, n_agreeing = split_by_losses(told, unheard)
        fed.record(assessed=len(told), agreeing_fits=n_agreeing)
        return replace(state, split=split, yardstick=yardstick if unheard else {})

    def equivalent_epochs(self, rounds: int) -> float:
        losses = 0.3  # a forward pass, once
        n_apart = max(0, rounds - self.config.identify.after)
        return float(rounds * self.config.epochs + n_apart * self.extra_epochs() + (losses if n_apart else 0.0))

    def extra_epochs(self) -> float:
        """Return what a round in two groups costs beside plain training, in epochs."""
        return 0.0

    # ------------------------------------------------------------------ on the client

    @client_task
    def train_clean(self, client: Client, model: Weights) -> Reply:
        """Train on the given labels with logit adjustment."""
        client.state.clear()  # a client that was called noisy before may hold corrections
        adjustment = self.adjustment(client)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return stages.train.la_loss(module(batch.images), batch.labels, adjustment)

        module = client.module(model)
        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        return methods.local_training.trained_reply(client, module, loss)

    @client_task
    def measure_losses(self, client: Client, model: Weights) -> Reply:
        """Tell the mean loss of each class, NaN for one without samples."""
        is_augmented = self.config.identify.images == "augmented"
        module = client.module(model)
        return {"losses": methods.local_training.mean_loss_by_class(client, module, is_augmented=is_augmented)}

    def adjustment(self, client: Client) -> Tensor:
        """Return the logit adjustment m of this client's given labels, (C,)."""
        prior = stages.train.class_prior(client.data.labels, client.data.n_classes)
        return stages.train.logit_adjustment(prior, self.config.la.strength).to(client.device)


def usable_losses(
    received: Mapping[ClientId, Any], known: Mapping[ClientId, Sequence[float]]
) -> tuple[dict[ClientId, list[float]], dict[ClientId, str]]:
    """Sort what clients sent into usable losses, one number per class, and the fault of each of the others.

    Where clients disagree about the number of classes, most of them are right, those `known` from before included.
    """
    losses: dict[ClientId, list[float]] = {}
    faults: dict[ClientId, str] = {}
    for client, sent in received.items():
        if not isinstance(sent, list) or not all(isinstance(value, float) for value in sent):
            faults[client] = "they are no list of numbers"
        elif any(math.isinf(value) or value < 0 for value in sent):
            faults[client] = "one is infinite or negative"
        elif all(math.isnan(value) for value in sent):
            faults[client] = "there is none"
        else:
            losses[client] = sent
    lengths = Counter(len(values) for values in (*known.values(), *losses.values()))
    for client in list(losses):
        if (n_classes := len(losses[client])) != lengths.most_common(1)[0][0]:
            faults[client] = f"{n_classes} classes, unlike most clients"
            del losses[client]
    return losses, faults
