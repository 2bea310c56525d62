"""RHFL (Fang and Ye, Robust Federated Learning with Noisy and Heterogeneous Clients, CVPR 2022).

There is no global model. Every client keeps its own, and learns from what the others answer on public images, the more
from those whose losses are low and falling.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from torch import Tensor, nn

from fedsir.data.shapes import Shape
from fedsir.methods import rhfl_math as maths
from fedsir.methods.averaging import mean_loss
from fedsir.methods.base import Client, Federation, Method, Payload, ServerState, client_task
from fedsir.methods.baseline_settings import RHFLConfig
from fedsir.methods.local_training import Batch, train_with, training_loss
from fedsir.methods.public_batches import PublicBatches, answers_to, learn
from fedsir.methods.replies import ClientId, Reply, Weights
from fedsir.models.weights import weights_of

Answers = Annotated[Tensor, Shape("images", "classes")]


@dataclass(frozen=True)
class RHFLState(ServerState):
    """`model` stays the initial one, which late comers begin from."""

    losses: dict[ClientId, float] = field(default_factory=dict)  # when a client was last heard
    started: list[ClientId] = field(default_factory=list)  # clients that have a model of their own


@dataclass(frozen=True)
class Pretrained(Reply):
    """A client has a model of its own now; it stays there.

    n_samples : how many samples it was trained on
    loss : mean training loss per sample
    """

    n_samples: int
    loss: float


@dataclass(frozen=True)
class FirstAnswers(Reply):
    """How well a client does, and what it says of the first public images.

    loss : mean loss on its own samples
    n_batches : how many batches the public images make
    answers : probabilities of the classes for each image
    """

    loss: float
    n_batches: int
    answers: Answers

    def fault(self) -> str | None:
        return _fault_of(self.answers)


@dataclass(frozen=True)
class Learnt(Reply):
    """What a client says after it has learnt from the others' answers to some public images.

    n_samples : how many samples it has
    public_loss : mean loss on these images; none where nobody else answered
    loss : mean training loss on its own samples, after the last images of a round
    answers : probabilities of the classes for each of the next images, before the last
    """

    n_samples: int
    public_loss: float | None
    loss: float | None = None
    answers: Answers | None = None

    def fault(self) -> str | None:
        return None if self.answers is None else _fault_of(self.answers)


def _fault_of(answers: Tensor) -> str | None:
    is_one = (answers.sum(dim=1) - 1).abs() <= 1e-3
    return None if bool((answers >= 0).all() and is_one.all()) else "answers: a row is no probability"


class RHFL(Method[RHFLConfig, RHFLState]):
    name = "rhfl"
    Config = RHFLConfig
    State = RHFLState
    is_personal = True

    def start(self, fed: Federation, model: Weights) -> RHFLState:
        """Every client trains a model of its own."""
        replies = fed.ask(self.pretrain, fed.clients, model=model)
        fed.record(loss=mean_loss(replies))
        return RHFLState(model=model, started=list(replies))

    def round(self, t: int, state: RHFLState, fed: Federation) -> RHFLState:
        """Clients tell losses and answers, learn from each other batch by batch, then train on their own data."""
        del t  # every round is alike
        known = set(state.started)
        late = fed.ask(self.pretrain, [k for k in fed.participants if k not in known], model=state.model)
        here = [k for k in fed.participants if k in known or k in late]
        draw = fed.random.derive("public").integer()
        looks = fed.ask(self.look, here, draw=draw)
        answers = _alike({k: reply.answers for k, reply in looks.items()}, fed)
        losses = {k: looks[k].loss for k in answers}
        n_batches = min((looks[k].n_batches for k in answers), default=0)
        weights = maths.confidence_weights(losses, state.losses, self.config.confidence_strength)
        done, public_loss = self.learn_together(answers, weights, n_batches, draw, fed)
        fed.record(loss=mean_loss(done), public_loss=public_loss, private_losses=losses, weights=weights)
        return RHFLState(model=state.model, losses=state.losses | losses, started=[*state.started, *late])

    def learn_together(
        self,
        answers: dict[ClientId, Tensor],
        weights: Mapping[ClientId, float],
        n_batches: int,
        draw: int,
        fed: Federation,
    ) -> tuple[Mapping[ClientId, Learnt], float | None]:
        """Go through the public batches; return the replies to the last ask and the mean loss on public images.

        Each ask carries what the others said of some batches; the reply says something of the next ones.
        """
        at_once = 1 if self.config.exchange == "batch" else n_batches
        first, losses = 0, []
        while answers:
            # One client alone has nobody to learn from.
            is_last = first + at_once >= n_batches or len(answers) < 2
            others = maths.answers_of_others(answers, weights) if len(answers) > 1 else {}
            each: dict[ClientId, Payload] = {k: {"others": others.get(k)} for k in answers}
            replies = fed.ask(self.learn, answers, each=each, draw=draw, first=first, is_last=is_last)
            losses += [reply.public_loss for reply in replies.values() if reply.public_loss is not None]
            if is_last:
                return replies, math.fsum(losses) / len(losses) if losses else None
            answers = _alike({k: r.answers for k, r in replies.items() if r.answers is not None}, fed)
            first += at_once
        return {}, None

    # ------------------------------------------------------------------ on the client

    @client_task
    def pretrain(self, client: Client, model: Weights) -> Pretrained:
        """Train a model of one's own, from the common first one; asked once, before a client's first round."""
        module = client.module(model)
        loss = train_with(self, client, module, self.loss_of, epochs=self.config.pretrain_epochs)
        client.state["model"] = weights_of(module)
        return Pretrained(len(client.data), loss)

    @client_task
    def look(self, client: Client, draw: int) -> FirstAnswers:
        """Measure the loss on own samples, answer the first public images; asked at the beginning of every round."""
        client.state.pop("moments", None)  # of a round that this client did not see the end of
        module = client.module(client.state["model"])
        loss = training_loss(client, module, self.loss_of, self.config.batch_size)
        public = self.public_batches(client, draw)
        client.state["model"] = weights_of(module)  # before it answers, which moves running statistics
        stop = 1 if self.config.exchange == "batch" else public.n_batches
        return FirstAnswers(loss, public.n_batches, answers_to(module, public.images(0, stop)))

    @client_task
    def learn(self, client: Client, draw: int, first: int, is_last: bool, others: Tensor | None) -> Learnt:
        """Learn what the others say of public images, then answer the next or train; asked once per exchange."""
        module = client.module(client.state["model"])
        public = self.public_batches(client, draw)
        public_loss, stop = None, first
        if others is not None:
            stop = first + len(others) // public.size
            images = zip(public.images(first, stop), others.to(client.device).split(public.size), strict=True)
            public_loss = self.learn_publicly(client, module, images)
        loss = answers = None
        if is_last:
            client.state.pop("moments", None)
            n_times = min(max(public.n_images // len(client.data), 1), self.config.max_epochs)
            loss = train_with(self, client, module, self.loss_of, epochs=self.config.epochs * n_times)
        client.state["model"] = weights_of(module)  # before it answers, which moves running statistics
        if not is_last:
            answers = answers_to(module, public.images(stop, stop + 1))
        return Learnt(len(client.data), public_loss, loss, answers)

    def public_batches(self, client: Client, draw: int) -> PublicBatches:
        return PublicBatches(client, draw, self.config.public_batch_size)

    def loss_of(self, module: nn.Module, batch: Batch) -> Tensor:
        return maths.symmetric_cross_entropy(
            module(batch.images),
            batch.labels,
            ce_weight=self.config.ce_weight,
            reverse_weight=self.config.reverse_weight,
        )

    def learn_publicly(self, client: Client, module: nn.Module, pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
        """Take a step on each (images, answers of the others); return the mean loss."""
        config, is_kept = self.config, self.config.public_optimiser == "kept"
        losses, moments = learn(
            module,
            pairs,
            maths.consensus_loss,
            lambda: self.optimizer(module.parameters(), lr=config.lr, weight_decay=config.weight_decay),
            moments=client.state.get("moments"),
            is_fresh=not is_kept,
        )
        if is_kept:
            client.state["moments"] = moments
        return math.fsum(losses) / len(losses)


def _alike(answers: Mapping[ClientId, Tensor], fed: Federation) -> dict[ClientId, Tensor]:
    """Return the answers about as many images as most clients answered about; the others are left out."""
    usual = Counter(len(answer) for answer in answers.values()).most_common(1)
    for k, answer in answers.items():
        if len(answer) != usual[0][0]:
            fed.reject(k, f"it answered {len(answer)} public images, not {usual[0][0]}")
    return {k: answer for k, answer in answers.items() if len(answer) == usual[0][0]}
