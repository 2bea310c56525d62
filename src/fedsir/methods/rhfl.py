"""RHFL (Fang and Ye, Robust Federated Learning with Noisy and Heterogeneous Clients, CVPR 2022).

There is no global model. Every client keeps its own, and learns from what the others answer on public images, the more
from those whose losses are low and falling.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from fedsir import methods
from fedsir.methods.base import (
    Client,
    ClientId,
    Federation,
    Method,
    MethodConfig,
    Payload,
    Reply,
    ServerState,
    Weights,
    client_task,
)
from fedsir.methods.fedavg import mean_loss
from fedsir.methods.workload import FORWARD_SHARE, Size, Work

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch
    from fedsir.methods.public_batches import PublicBatches


class RHFLConfig(MethodConfig):
    pretrain_epochs: int | None = Field(
        None, ge=1, description="epochs on own data before a client first takes part; 40 per 100 rounds"
    )
    ce_weight: float = Field(0.1, ge=0, description="weight of the cross-entropy")
    reverse_weight: float = Field(1.0, ge=0, description="weight of the reverse cross-entropy")
    confidence_strength: float = Field(0.5, ge=0, description="how much a falling loss counts (β)")
    public_batch_size: int = Field(256, ge=2, description="public images per step")
    exchange: Literal["batch", "round"] = Field(
        "batch", description="answers are exchanged anew for every public batch, or once a round for all of them"
    )
    public_optimiser: Literal["fresh", "kept"] = Field(
        "fresh", description="a new Adam for every public batch as published, or one for a round's batches"
    )
    max_epochs: int = Field(
        10, ge=1, description="at most so many times method.epochs a round, for clients with few samples"
    )

    def scaled_to(self, rounds: int) -> Self:
        epochs = max(1, round(0.4 * rounds)) if self.pretrain_epochs is None else self.pretrain_epochs
        return self.model_copy(update={"pretrain_epochs": epochs})


@dataclass(frozen=True)
class RHFLState(ServerState):
    """`model` stays the initial one, which late comers begin from."""

    losses: dict[ClientId, float] = field(default_factory=dict)  # when a client was last heard
    started: list[ClientId] = field(default_factory=list)  # clients that have a model of their own


class RHFL(Method):
    name = "rhfl"
    summary = "every client keeps its own model and learns from the others' answers on public images"
    Config = RHFLConfig
    State = RHFLState
    needs_public = True
    is_personal = True
    config: RHFLConfig

    def start(self, fed: Federation, model: Weights) -> RHFLState:
        """Every client trains a model of its own."""
        replies = fed.ask("pretrain", fed.clients, model=model)
        fed.record(loss=mean_loss(replies))
        return RHFLState(model=model, started=list(replies))

    def round(self, t: int, state: RHFLState, fed: Federation) -> RHFLState:
        """Clients tell losses and answers, learn from each other batch by batch, then train on their own data."""
        del t  # every round is alike
        known = set(state.started)
        late = fed.ask("pretrain", [k for k in fed.participants if k not in known], model=state.model)
        here = [k for k in fed.participants if k in known or k in late]
        draw = fed.random.derive("public").integer()
        looks = fed.ask("look", here, draw=draw)
        answers, n_batches = _first_answers(looks, fed)
        losses = {k: looks[k]["loss"] for k in answers}
        weights = methods.rhfl_math.confidence_weights(losses, state.losses, self.config.confidence_strength)
        done, public_loss = self.learn_together(answers, weights, n_batches, draw, fed)
        fed.record(loss=mean_loss(done), public_loss=public_loss, private_losses=losses, weights=weights)
        return RHFLState(model=state.model, losses=state.losses | losses, started=[*state.started, *late])

    def start_epochs(self) -> float:
        assert self.config.pretrain_epochs is not None, "scaled_to fills it in"
        return float(self.config.pretrain_epochs)

    def work(self, size: Size) -> list[Work]:
        start, _ = super().work(size)
        config, n = self.config, size.n_participants
        batch = min(config.public_batch_size, size.n_public)
        n_batches = size.n_public // max(1, batch) if n > 1 else 0  # one client alone has nobody to learn from
        n_times = min(max(size.n_public * size.n_clients // size.n_samples, 1), config.max_epochs)
        own = (config.epochs * n_times + FORWARD_SHARE) * size.n_drawn
        public = n * n_batches * batch * (1 + FORWARD_SHARE)  # answered, then trained on
        n_calls = 1 + max(1, n_batches if config.exchange == "batch" else 1)
        return [start, Work(size.rounds * (own + public), size.rounds * n * n_calls, n)]

    def learn_together(
        self,
        answers: dict[ClientId, Tensor],
        weights: Mapping[ClientId, float],
        n_batches: int,
        draw: int,
        fed: Federation,
    ) -> tuple[Mapping[ClientId, Reply], float | None]:
        """Go through the public batches; return the replies to the last ask and the mean loss on public images.

        Each ask carries what the others said of some batches; the reply says something of the next ones.
        """
        at_once = 1 if self.config.exchange == "batch" else n_batches
        first, losses = 0, []
        while answers:
            # One client alone has nobody to learn from.
            is_last = first + at_once >= n_batches or len(answers) < 2
            others = methods.rhfl_math.answers_of_others(answers, weights) if len(answers) > 1 else {}
            each: dict[ClientId, Payload] = {k: {"others": others.get(k)} for k in answers}
            replies = fed.ask("learn", answers, each=each, draw=draw, first=first, is_last=is_last)
            losses += [reply["public_loss"] for reply in replies.values() if reply["public_loss"] is not None]
            if is_last:
                return replies, math.fsum(losses) / len(losses) if losses else None
            shape = next(iter(answers.values())).shape
            answers = _usable({k: reply["answers"] for k, reply in replies.items()}, tuple(shape), fed)
            first += at_once
        return {}, None

    # ------------------------------------------------------------------ on the client

    @client_task
    def pretrain(self, client: Client, model: Weights) -> Reply:
        """Train a model of one's own, from the common first one."""
        assert self.config.pretrain_epochs is not None, "scaled_to fills it in"
        module = client.module(model)
        loss = self.train_privately(client, module, self.config.pretrain_epochs)
        return self.remember(client, module) | {"loss": loss}

    @client_task
    def look(self, client: Client, draw: int) -> Reply:
        """Tell the mean loss on own samples, and the answers to the first public images."""
        client.state.pop("moments", None)  # of a round that this client did not see the end of
        module = client.module(client.state["model"])
        loss = methods.local_training.training_loss(client, module, self.loss_of, self.config.batch_size)
        public = self.public_batches(client, draw)
        reply = self.remember(client, module) | {"loss": loss, "n_batches": public.n_batches}
        stop = 1 if self.config.exchange == "batch" else public.n_batches
        return reply | {"answers": methods.public_batches.answers(module, public.images(0, stop))}

    @client_task
    def learn(self, client: Client, draw: int, first: int, is_last: bool, others: Tensor | None) -> Reply:
        """Come nearer to what the others say of public batches from `first` on; then answer the next, or train."""
        module = client.module(client.state["model"])
        public = self.public_batches(client, draw)
        loss, stop = None, first
        if others is not None:
            stop = first + len(others) // public.size
            images = zip(public.images(first, stop), others.to(client.device).split(public.size), strict=True)
            loss = self.learn_publicly(client, module, images)
        reply: Payload = {"public_loss": loss}
        if is_last:
            client.state.pop("moments", None)
            n_times = min(max(public.n_images // len(client.data), 1), self.config.max_epochs)
            reply["loss"] = self.train_privately(client, module, self.config.epochs * n_times)
        reply |= self.remember(client, module)  # before it answers, which moves running statistics
        if not is_last:
            reply["answers"] = methods.public_batches.answers(module, public.images(stop, stop + 1))
        return reply

    def remember(self, client: Client, module: nn.Module) -> Payload:
        from fedsir.models.weights import weights_of

        client.state["model"] = weights_of(module)
        return {"n_samples": len(client.data)}

    def public_batches(self, client: Client, draw: int) -> PublicBatches:
        return methods.public_batches.PublicBatches(client, draw, self.config.public_batch_size)

    def loss_of(self, module: nn.Module, batch: Batch) -> Tensor:
        return methods.rhfl_math.symmetric_cross_entropy(
            module(batch.images),
            batch.labels,
            ce_weight=self.config.ce_weight,
            reverse_weight=self.config.reverse_weight,
        )

    def learn_publicly(self, client: Client, module: nn.Module, pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
        """Take a step on each (images, answers of the others); return the mean loss."""
        config, is_kept = self.config, self.config.public_optimiser == "kept"
        losses, moments = methods.public_batches.learn(
            module,
            pairs,
            methods.rhfl_math.consensus_loss,
            lr=config.lr,
            weight_decay=config.weight_decay,
            moments=client.state.get("moments"),
            is_fresh=not is_kept,
        )
        if is_kept:
            client.state["moments"] = moments
        return math.fsum(losses) / len(losses)

    def train_privately(self, client: Client, module: nn.Module, epochs: int) -> float:
        config = self.config.model_copy(update={"epochs": epochs})
        return methods.local_training.train_with(client, module, self.loss_of, config)


def _first_answers(looks: Mapping[ClientId, Reply], fed: Federation) -> tuple[dict[ClientId, Tensor], int]:
    """Return the answers of those who speak of as many batches as most do, and have a loss; and how many batches."""
    shapes = Counter((reply["n_batches"], tuple(reply["answers"].shape)) for reply in looks.values())
    if not shapes:
        return {}, 0
    (n_batches, shape), _ = shapes.most_common(1)[0]
    finite = {k: reply["answers"] for k, reply in looks.items() if math.isfinite(reply["loss"])}
    for k in looks:
        if k not in finite:
            fed.reject(k, "its loss is not a number")
    return _usable(finite, shape, fed), n_batches


def _usable(answers: Mapping[ClientId, Tensor], shape: tuple[int, ...], fed: Federation) -> dict[ClientId, Tensor]:
    """Return the answers that are probabilities of the right shape; the others are noted as failures."""
    faults = {}
    for k, answer in answers.items():
        if tuple(answer.shape) != shape:
            faults[k] = f"its answers are {tuple(answer.shape)}, not {shape}"
        elif bool((answer < 0).any() or ((answer.sum(dim=1) - 1).abs() > 1e-3).any()):
            faults[k] = "its answers are no probabilities"
    for k, fault in faults.items():
        fed.reject(k, fault)
    return {k: answer for k, answer in answers.items() if k not in faults}
