"""FedNed (Lu et al., Federated Learning with Extremely Noisy Clients via Negative Distillation, AAAI 2024).

Models that are unsure of public images come from extremely noisy clients. They are left out of the average, which is
then pushed away from what they answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field

from fedsir import methods
from fedsir.errors import MethodError
from fedsir.methods.base import (
    Client,
    ClientId,
    Federation,
    MethodConfig,
    Payload,
    Reply,
    Server,
    ServerState,
    Weights,
    client_task,
    server_task,
)
from fedsir.methods.fedavg import FedAvg, average_by_samples, mean_loss
from fedsir.methods.reply_views import Joined
from fedsir.methods.workload import FORWARD_SHARE, Size, Work
from fedsir.randomness import KeyedRandom
from fedsir.stages.split import ClientSplit

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch
    from fedsir.methods.public_batches import PublicBatches

AT_ONCE = 8  # models that the server holds while it looks at them


class FedNedConfig(MethodConfig):
    warm_up: int | None = Field(None, ge=0, description="rounds of plain averaging first; 10 per 100 rounds")
    threshold: float = Field(
        1.2, ge=1, description="times the mean uncertainty that makes a client extremely noisy (λ·K: λ = 0.12, K = 10)"
    )
    dropout: float = Field(0.3, ge=0, lt=1, description="share of features left out when uncertainty is measured")
    dropout_passes: int = Field(10, ge=1, description="passes with other features left out")
    public_batch_size: int = Field(128, ge=2, description="public images to measure on, and per step of distillation")
    confidence: float = Field(0.95, ge=0, lt=1, description="an extremely noisy client trusts surer pseudo-labels")
    temperature: float = Field(2.0, gt=0, description="of pseudo-labels and of the student (T)")
    negative_distillation: bool = Field(
        True, description="as in the paper; off is what the published code does: no distillation, one model each"
    )
    distillation_steps: int = Field(100, ge=1, description="steps of negative distillation a round")
    distillation_lr: float = Field(3e-5, gt=0, description="Adam's learning rate in it")
    reciprocal_floor: float = Field(0.1, gt=0, description="logits of a bad teacher count as at least so far from 0")

    def scaled_to(self, rounds: int) -> Self:
        return self.model_copy(update={"warm_up": round(0.1 * rounds) if self.warm_up is None else self.warm_up})


@dataclass(frozen=True)
class FedNedState(ServerState):
    shares: dict[ClientId, float] = field(default_factory=dict)  # of the uncertainty, when last measured; mean is 1
    extreme: list[ClientId] = field(default_factory=list)  # once extremely noisy, always


class FedNed(FedAvg):
    name = "fedned"
    summary = "leaves out models that are unsure of public images, and unlearns what these answer"
    Config = FedNedConfig
    State = FedNedState
    needs_public = True
    config: FedNedConfig

    def round(self, t: int, state: Any, fed: Federation) -> FedNedState:
        assert self.config.warm_up is not None, "scaled_to fills it in"
        accused = frozenset(state.extreme)
        usual = fed.ask("train", [k for k in fed.participants if k not in accused], model=state.model)
        if t <= self.config.warm_up:
            fed.record(loss=mean_loss(usual))
            return FedNedState(model=average_by_samples(usual) if usual else state.model)
        special = fed.ask("train_extreme", [k for k in fed.participants if k in accused], model=state.model)
        special = _of_one_form(special, state.model, fed)
        replies = Joined(fed.participants, usual, special)
        shares = self.measure(replies, fed)
        flagged = [k for k, share in shares.items() if share > self.config.threshold]
        good = Joined([k for k in shares if k not in flagged and "model" in replies[k]], replies)
        model = average_by_samples(good) if good else state.model
        fed.record(loss=mean_loss(replies), uncertainty=shares, left_out=[k for k in shares if k not in good])
        fed.record(pseudo_labelled=sum(reply["n_samples"] for reply in special.values() if "noisy_model" in reply))
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

    def work(self, size: Size) -> list[Work]:
        config, n = self.config, size.n_participants
        assert config.warm_up is not None, "scaled_to fills it in"
        batch = min(config.public_batch_size, size.n_public)
        after = max(0, size.rounds - config.warm_up)
        n_extreme = n / 4  # say
        training = (size.rounds + after * n_extreme / n) * config.epochs * size.n_drawn  # extremely noisy ones twice
        scoring = Work(after * n * batch * FORWARD_SHARE, after * n, min(n, AT_ONCE))
        works = [Work(training, size.rounds * n, n), scoring]
        if not config.negative_distillation:
            return works
        distilled = after * config.distillation_steps * batch
        answers = Work(n_extreme * distilled * FORWARD_SHARE, n_extreme * after, min(n, AT_ONCE))
        return [*works, answers, Work(distilled, after, 1)]

    def measure(self, replies: Mapping[ClientId, Reply], fed: Federation) -> dict[ClientId, float]:
        """Return the uncertainty of each client's model on public images, over the mean of all.

        Of an extremely noisy client without pseudo-labels it is the other model's: it is not averaged, but without it
        the mean would fall, and the next clients with it.
        """
        draw = fed.random.derive("scoring").integer()
        scores: dict[ClientId, float] = {}
        for some in _in_pieces(list(replies)):
            models = {k: replies[k]["model" if "model" in replies[k] else "noisy_model"] for k in some}
            found = fed.compute("score", each={k: {"model": model} for k, model in models.items()}, draw=draw)
            scores |= {k: reply["uncertainty"] for k, reply in found.items()}
        for k, score in scores.items():
            if not math.isfinite(score):
                fed.reject(k, "its model answers public images with no numbers")
        finite = {k: score for k, score in scores.items() if math.isfinite(score)}
        fed.record(mean_uncertainty=math.fsum(finite.values()) / len(finite) if finite else None)
        return {k: share * len(finite) for k, share in methods.fedned_math.shares_of(finite).items()}

    def unlearn(
        self,
        model: Weights,
        flagged: Sequence[ClientId],
        usual: Mapping[ClientId, Reply],
        special: Mapping[ClientId, Reply],
        fed: Federation,
    ) -> Weights:
        """Return the averaged model after negative distillation; as it was without any bad teacher."""
        draw = fed.random.derive("distillation").integer()
        total, n_teachers = None, 0
        for some in _in_pieces([*flagged, *special]):
            teachers = {k: usual[k]["model"] if k in usual else special[k]["noisy_model"] for k in some}
            answers = fed.compute("bad_answers", each={k: {"model": w} for k, w in teachers.items()}, draw=draw)
            for k, reply in answers.items():
                if not bool(reply["targets"].isfinite().all()):
                    fed.reject(k, "its second model answers public images with no numbers")
                    continue
                total = reply["targets"] if total is None else total + reply["targets"]
                n_teachers += 1
        if total is None:
            return model
        targets = total / n_teachers
        (distilled,) = fed.compute("distil", model=model, targets=targets, draw=draw).values()
        if not all(bool(tensor.isfinite().all()) for tensor in distilled["model"].values()):
            raise MethodError("Negative distillation diverged: lower method.distillation_lr, or switch it off.")
        entropy = float(methods.fedned_math.mean_entropy(targets))
        fed.record(bad_teachers=n_teachers, target_entropy=entropy, distillation_losses=distilled["losses"])
        student: Weights = distilled["model"]
        return student

    # ------------------------------------------------------------------ where the server computes

    @server_task
    def score(self, server: Server, model: Weights, draw: int) -> Reply:
        """Measure how unsure a model is of public images while some of its features are left out."""
        import torch

        config, module = self.config, server.module(model)
        (images,) = methods.public_batches.PublicBatches(server, draw, config.public_batch_size, 1).images(0, 1)
        with torch.no_grad():
            # Training mode as published: batch normalisation goes by these images.
            features = module.train(len(images) > 1).features(images)  # type: ignore[operator]
            generator = KeyedRandom(draw, ("dropout",)).for_torch()
            masks = methods.fedned_math.dropout_masks(config.dropout_passes, features.shape, config.dropout, generator)
            score = methods.fedned_math.uncertainty(features, module.head, masks.to(server.device))  # type: ignore[arg-type]
        return {"uncertainty": float(score)}

    @server_task
    def bad_answers(self, server: Server, model: Weights, draw: int) -> Reply:
        """Return what one bad teacher's answers to the images of the distillation turn into, (steps · b, C)."""
        import torch

        module, public = server.module(model).eval(), self.distillation_batches(server, draw)
        with torch.no_grad():
            targets = [
                methods.fedned_math.reciprocal_answers(module(images), self.config.reciprocal_floor)
                for images in public.images(0, public.n_batches)
            ]
        return {"targets": torch.cat(targets)}

    @server_task
    def distil(self, server: Server, model: Weights, targets: Tensor, draw: int) -> Reply:
        """Pull the averaged model towards the mean of these targets; return it, and the first and the last loss."""
        from fedsir.models.weights import weights_of

        config, module, public = self.config, server.module(model), self.distillation_batches(server, draw)

        def loss_of(logits: Tensor, target: Tensor) -> Tensor:
            return methods.fedned_math.negative_loss(logits, target, config.temperature)

        losses, _ = methods.public_batches.learn(
            module,
            zip(public.images(0, public.n_batches), targets.to(server.device).split(public.size), strict=True),
            loss_of,
            lr=config.distillation_lr,
            weight_decay=config.weight_decay,
            is_training=False,  # else batch normalisation would remember public images instead of the clients' own
        )
        return {"model": weights_of(module), "losses": [losses[0], losses[-1]]}

    def distillation_batches(self, server: Server, draw: int) -> PublicBatches:
        config = self.config
        return methods.public_batches.PublicBatches(server, draw, config.public_batch_size, config.distillation_steps)

    # ------------------------------------------------------------------ on the client

    @client_task
    def train_extreme(self, client: Client, model: Weights) -> Reply:
        """Train one model on sure pseudo-labels, for the average, and one on the given labels, to unlearn."""
        if not self.config.negative_distillation:
            return self.train_as_published(client, model)
        own = replace(client, random=client.random.derive("given"))
        reply = dict(self.train(own, model))
        second: Payload = {"noisy_model": reply.pop("model")}
        pseudo = self.pseudo_labelled(client, model)
        if pseudo is None:
            return second | {"n_samples": 0, "loss": reply["loss"]}
        return second | dict(self.train(pseudo, model))

    def pseudo_labelled(self, client: Client, model: Weights) -> Client | None:
        """Return a client with the samples that the global model is sure of, labelled by it; None without any."""
        labels, is_sure = methods.local_training.sure_labels(
            client, client.module(model), self.config.temperature, self.config.confidence
        )
        if not bool(is_sure.any()):
            return None
        data = replace(client.data, images=client.data.images[is_sure], labels=labels[is_sure])
        return replace(client, data=data, state={}, random=client.random.derive("pseudo"))

    def train_as_published(self, client: Client, model: Weights) -> Reply:
        """Train one model on pseudo-labels of its own, then on the given labels.

        The share of sure samples scales the loss of a batch; it does not choose among them.
        """
        config = self.config

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            logits = module(batch.images)
            return methods.fedned_math.scaled_pseudo_loss(logits, config.temperature, config.confidence)

        module = client.module(model)
        # Without weight decay, which is all that is left of a batch with no sure sample, and Adam takes a whole step
        # along whatever is left.
        own = replace(client, random=client.random.derive("pseudo"))
        methods.local_training.train_with(own, module, loss_of, config.model_copy(update={"weight_decay": 0.0}))
        loss = methods.local_training.train_with(client, module, methods.local_training.cross_entropy, config)
        return methods.local_training.trained_reply(client, module, loss)


def _of_one_form(replies: Mapping[ClientId, Reply], model: Weights, fed: Federation) -> Mapping[ClientId, Reply]:
    """Return the replies whose second model, if any, has the form of the one that was sent."""
    form = {name: tensor.shape for name, tensor in model.items()}
    fitting = []
    for k, reply in replies.items():
        second = reply.get("noisy_model", model)  # none as published
        if {name: tensor.shape for name, tensor in second.items()} == form:
            fitting.append(k)
        else:
            fed.reject(k, "its second model has other names or shapes than the one it was sent")
    return Joined(fitting, replies)


def _in_pieces(clients: Sequence[ClientId]) -> Iterator[Sequence[ClientId]]:
    return (clients[start : start + AT_ONCE] for start in range(0, len(clients), AT_ONCE))
