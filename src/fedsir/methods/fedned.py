"""FedNed (Lu et al., Federated Learning with Extremely Noisy Clients via Negative Distillation, AAAI 2024).

Models that are unsure of public images come from extremely noisy clients. They are left out of the average, which is
then pushed away from what they answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from fedsir.data.shapes import Shape
from fedsir.errors import MethodError
from fedsir.methods import fedned_math as maths
from fedsir.methods.averaging import mean_loss
from fedsir.methods.base import Client, Federation, Method, Server, ServerState, client_task, server_task
from fedsir.methods.baseline_settings import FedNedConfig
from fedsir.methods.local_training import Batch, cross_entropy, sure_labels, train_with
from fedsir.methods.public_batches import PublicBatches, learn
from fedsir.methods.replies import ClientId, Joined, Reply, Weights
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom
from fedsir.stages.split import ClientSplit
from fedsir.stages.train import average_models

AT_ONCE = 8  # models that the server holds while it looks at them


@dataclass(frozen=True)
class FedNedState(ServerState):
    shares: dict[ClientId, float] = field(default_factory=dict)  # of the uncertainty, when last measured; mean is 1
    extreme: list[ClientId] = field(default_factory=list)  # once extremely noisy, always


@dataclass(frozen=True)
class TrainedTwice(Reply):
    """A client's model for the average, and that of an extremely noisy client to unlearn.

    model : trained on the given labels, or on sure pseudo-labels; none without any of these
    n_samples : how many samples it was trained on
    loss : mean training loss per sample
    noisy_model : trained on the given labels of an extremely noisy client
    """

    model: Weights | None
    n_samples: int
    loss: float
    noisy_model: Weights | None = None

    def fault(self) -> str | None:
        return "model is missing" if self.model is None and self.noisy_model is None else None

    @property
    def judged(self) -> Weights:
        """The model by which the client is judged."""
        found = self.noisy_model if self.model is None else self.model
        assert found is not None, "a reply without any model is a fault"
        return found


@dataclass(frozen=True)
class Score(Reply):
    """uncertainty : entropy of a model's mean answer to public images"""

    uncertainty: float | None


@dataclass(frozen=True)
class Targets(Reply):
    """targets : what a bad teacher's answers turn into"""

    targets: Annotated[Tensor, Shape("images", "classes", has_gaps=True)]


@dataclass(frozen=True)
class Distilled(Reply):
    """The averaged model after negative distillation, and the first and the last loss.

    model : its weights
    losses : the two losses
    """

    model: Weights
    losses: list[float]


class FedNed(Method[FedNedConfig, FedNedState]):
    name = "fedned"
    Config = FedNedConfig
    State = FedNedState

    def round(self, t: int, state: FedNedState, fed: Federation) -> FedNedState:
        accused = frozenset(state.extreme)
        usual = fed.ask(self.train, [k for k in fed.participants if k not in accused], model=state.model)
        if t <= self.config.warm_up:
            fed.record(loss=mean_loss(usual))
            return FedNedState(model=_average(usual) if usual else state.model)
        special = fed.ask(self.train_extreme, [k for k in fed.participants if k in accused], model=state.model)
        replies = Joined(fed.participants, usual, special)
        shares = self.measure(replies, fed)
        flagged = [k for k, share in shares.items() if share > self.config.threshold]
        good = Joined([k for k in shares if k not in flagged and replies[k].n_samples > 0], replies)
        model = _average(good) if good else state.model
        fed.record(loss=mean_loss(replies), uncertainty=shares, left_out=[k for k in shares if k not in good])
        fed.record(pseudo_labelled=sum(reply.n_samples for reply in special.values() if reply.noisy_model is not None))
        if self.config.negative_distillation and good:
            model = self.unlearn(model, [k for k in flagged if k in usual], usual, special, fed)
        extreme = [k for k in fed.clients if k in accused or k in flagged]
        shares = state.shares | shares
        split = ClientSplit(
            clean=tuple(k for k in fed.clients if k in shares and k not in extreme),
            noisy=tuple(extreme),
            statistics={k: (share,) for k, share in shares.items()},
            posterior_noisy={},
            not_assessed={k: fed.failures.get(k, "not seen yet") for k in fed.clients if k not in shares},
            evidence=None,
            has_two_groups=bool(extreme),
        )
        return FedNedState(model=model, split=split, shares=shares, extreme=extreme)

    def measure(self, replies: Mapping[ClientId, TrainedTwice], fed: Federation) -> dict[ClientId, float]:
        """Return the uncertainty of each client's model on public images, over the mean of all.

        Of an extremely noisy client without pseudo-labels it is the other model's: it is not averaged, but without it
        the mean would fall, and the next clients with it.
        """
        draw = fed.random.derive("scoring").integer()
        scores: dict[ClientId, float] = {}
        for some in _in_pieces(list(replies)):
            found = fed.compute(self.score, each={k: {"model": replies[k].judged} for k in some}, draw=draw)
            scores |= {k: math.nan if r.uncertainty is None else r.uncertainty for k, r in found.items()}
        for k, score in scores.items():
            if not math.isfinite(score):
                fed.reject(k, "its model answers public images with no numbers")
        finite = {k: score for k, score in scores.items() if math.isfinite(score)}
        fed.record(mean_uncertainty=math.fsum(finite.values()) / len(finite) if finite else None)
        return {k: share * len(finite) for k, share in maths.shares_of(finite).items()}

    def unlearn(
        self,
        model: Weights,
        flagged: Sequence[ClientId],
        usual: Mapping[ClientId, TrainedTwice],
        special: Mapping[ClientId, TrainedTwice],
        fed: Federation,
    ) -> Weights:
        """Return the averaged model after negative distillation; as it was without any bad teacher."""
        draw = fed.random.derive("distillation").integer()
        total, n_teachers = None, 0
        for some in _in_pieces([*flagged, *special]):
            teachers = {k: usual[k].model if k in usual else special[k].noisy_model for k in some}
            answers = fed.compute(self.bad_answers, each={k: {"model": w} for k, w in teachers.items()}, draw=draw)
            for k, reply in answers.items():
                if bool(reply.targets.isnan().any()):
                    fed.reject(k, "its second model answers public images with no numbers")
                    continue
                total = reply.targets if total is None else total + reply.targets
                n_teachers += 1
        if total is None:
            return model
        targets = total / n_teachers
        (distilled,) = fed.compute(self.distil, model=model, targets=targets, draw=draw).values()
        entropy = float(maths.mean_entropy(targets))
        fed.record(bad_teachers=n_teachers, target_entropy=entropy, distillation_losses=distilled.losses)
        return distilled.model

    # ------------------------------------------------------------------ where the server computes

    @server_task
    def score(self, server: Server, model: Weights, draw: int) -> Score:
        """Measure how unsure a model is of public images while some of its features are left out."""
        config, module = self.config, server.module(model)
        (images,) = PublicBatches(server, draw, config.public_batch_size, 1).images(0, 1)
        with torch.no_grad():
            # Training mode as published: batch normalisation goes by these images.
            features = module.train(len(images) > 1).features(images)  # type: ignore[operator]
            generator = KeyedRandom(draw, ("dropout",)).for_torch()
            masks = maths.dropout_masks(config.dropout_passes, features.shape, config.dropout, generator)
            score = maths.uncertainty(features, module.head, masks.to(server.device))  # type: ignore[arg-type]
        return Score(float(score) if bool(score.isfinite()) else None)

    @server_task
    def bad_answers(self, server: Server, model: Weights, draw: int) -> Targets:
        """Return what one bad teacher's answers to the images of the distillation turn into, (steps · b, C)."""
        module, public = server.module(model).eval(), self.distillation_batches(server, draw)
        with torch.no_grad():
            targets = [
                maths.reciprocal_answers(module(images), self.config.reciprocal_floor)
                for images in public.images(0, public.n_batches)
            ]
        return Targets(torch.cat(targets))

    @server_task
    def distil(self, server: Server, model: Weights, targets: Tensor, draw: int) -> Distilled:
        """Pull the averaged model towards the mean of these targets; return it, and the first and the last loss."""
        config, module, public = self.config, server.module(model), self.distillation_batches(server, draw)

        def loss_of(logits: Tensor, target: Tensor) -> Tensor:
            return maths.negative_loss(logits, target, config.temperature)

        losses, _ = learn(
            module,
            zip(public.images(0, public.n_batches), targets.to(server.device).split(public.size), strict=True),
            loss_of,
            lambda: self.optimizer(module.parameters(), lr=config.distillation_lr, weight_decay=config.weight_decay),
            is_training=False,  # else batch normalisation would remember public images instead of the clients' own
        )
        weights = weights_of(module)
        if not all(bool(tensor.isfinite().all()) for tensor in weights.values()):
            raise MethodError("negative distillation diverged: lower method.distillation_lr, or switch it off")
        return Distilled(weights, [losses[0], losses[-1]])

    def distillation_batches(self, server: Server, draw: int) -> PublicBatches:
        config = self.config
        return PublicBatches(server, draw, config.public_batch_size, config.distillation_steps)

    # ------------------------------------------------------------------ on the client

    @client_task
    def train(self, client: Client, model: Weights) -> TrainedTwice:
        """Train on the given labels; asked of the participants of every round that are not extremely noisy."""
        module = client.module(model)
        loss = train_with(self, client, module, cross_entropy)
        return TrainedTwice(weights_of(module), len(client.data), loss)

    @client_task
    def train_extreme(self, client: Client, model: Weights) -> TrainedTwice:
        """Train one model on sure pseudo-labels and one on the given labels; asked of extremely noisy participants."""
        if not self.config.negative_distillation:
            return self.train_as_published(client, model)
        noisy = self.train(replace(client, random=client.random.derive("given")), model)
        pseudo = self.pseudo_labelled(client, model)
        if pseudo is None:
            return TrainedTwice(None, 0, noisy.loss, noisy_model=noisy.model)
        return replace(self.train(pseudo, model), noisy_model=noisy.model)

    def pseudo_labelled(self, client: Client, model: Weights) -> Client | None:
        """Return a client with the samples that the global model is sure of, labelled by it; None without any."""
        labels, is_sure = sure_labels(client, client.module(model), self.config.temperature, self.config.confidence)
        if not bool(is_sure.any()):
            return None
        data = replace(client.data, images=client.data.images[is_sure], labels=labels[is_sure])
        return replace(client, data=data, state={}, random=client.random.derive("pseudo"))

    def train_as_published(self, client: Client, model: Weights) -> TrainedTwice:
        """Train one model on pseudo-labels of its own, then on the given labels.

        The share of sure samples scales the loss of a batch; it does not choose among them.
        """
        config = self.config

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            logits = module(batch.images)
            return maths.scaled_pseudo_loss(logits, config.temperature, config.confidence)

        module = client.module(model)
        # Without weight decay, which is all that is left of a batch with no sure sample, and Adam takes a whole step
        # along whatever is left.
        own = replace(client, random=client.random.derive("pseudo"))
        train_with(self, own, module, loss_of, weight_decay=0.0)
        loss = train_with(self, client, module, cross_entropy)
        return TrainedTwice(weights_of(module), len(client.data), loss)


def _average(replies: Mapping[ClientId, TrainedTwice]) -> Weights:
    """Return the mean of the models, weighted by the samples behind them."""
    return average_models((r.judged for r in replies.values()), [r.n_samples for r in replies.values()])


def _in_pieces(clients: Sequence[ClientId]) -> Iterator[Sequence[ClientId]]:
    return (clients[start : start + AT_ONCE] for start in range(0, len(clients), AT_ONCE))
