"""FedLSR (Jiang et al., Towards Federated Learning against Noisy Labels via Local Self-Regularization, CIKM 2022).

FedAvg with another local loss: two views of every image, mixed for the classification, compared for consistency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field

from fedsir import methods
from fedsir.methods.base import (
    Client,
    Federation,
    Method,
    MethodConfig,
    Reply,
    ServerState,
    Settings,
    Weights,
    client_task,
)
from fedsir.methods.fedavg import average_by_samples, mean_loss

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch


class View(Settings):
    """The second view of an image."""

    of: Literal["image", "normalised"] = Field(
        "image",
        description="what the colour changes are applied to, each image its own draw; or as published: the normalised "
        "tensor, one draw per batch, negative values lost",
    )
    strength: float = Field(0.8, ge=0, le=1, description="brightness, contrast and saturation change by up to this")
    hue: float = Field(0.2, ge=0, le=0.5, description="the hue turns by up to this; a whole turn is 1")
    jitter_chance: float = Field(0.8, ge=0, le=1, description="chance of a change of colours")
    grey_chance: float = Field(0.2, ge=0, le=1, description="chance of a greyscale image")


class FedLSRConfig(MethodConfig):
    double_softmax: bool = Field(
        True, description="classification and entropy put probabilities through a softmax again, as published"
    )
    mix_temperature: float = Field(0.5, gt=0, description="sharpens the mixed prediction (T)")
    sharpness: float = Field(3.0, gt=0, description="sharpens the predictions that are compared (1 / T_d)")
    consistency_weight: float = Field(0.4, ge=0, description="weight of their disagreement at its peak (γ)")
    consistency_mean: Literal["elements", "samples"] = Field(
        "elements", description="mean over samples and classes, as published, or over samples"
    )
    warm_up: float | None = Field(None, ge=0, description="rounds over which γ grows from 0 (t_w); 20 per 100 rounds")
    entropy_weight: float = Field(0.3, ge=0, description="weight of the entropy, which is minimised (λ_e); 0 = paper")
    view: View = View()

    def scaled_to(self, rounds: int) -> Self:
        return self.model_copy(update={"warm_up": 0.2 * rounds if self.warm_up is None else self.warm_up})


class FedLSR(Method):
    name = "fedlsr"
    summary = "FedAvg with a local loss in which two views of an image must agree"
    Config = FedLSRConfig
    config: FedLSRConfig

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        weight = self.consistency_weight(t)
        replies = fed.ask("train", fed.participants, model=state.model, consistency_weight=weight)
        fed.record(loss=mean_loss(replies), consistency_weight=weight)
        return ServerState(model=average_by_samples(replies) if replies else state.model)

    def equivalent_epochs(self, rounds: int) -> float:
        return float(rounds * self.config.epochs * 2)  # both views forwards and backwards

    def consistency_weight(self, t: int) -> float:
        """Return γ(r) for r = t - 1."""
        over = self.config.warm_up
        assert over is not None, "scaled_to fills it in"
        return self.config.consistency_weight * (min(1.0, (t - 1) / over) if over > 0 else 1.0)

    # ------------------------------------------------------------------ on the client

    @client_task
    def train(self, client: Client, model: Weights, consistency_weight: float) -> Reply:
        """Train on the given labels with two views of every image."""
        from fedsir.data.colour import N_DRAWS

        draws = methods.step_draws.StepDraws(client, "views", self.config.epochs, N_DRAWS + 2)
        second_view = self.second_view(client)
        config, regularise = self.config, methods.fedlsr_math

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            drawn = draws.take(len(batch.index))
            one, other = module(batch.images), module(second_view(batch.images, drawn[:, 1:]))
            # λ of the whole batch is Beta(1, 1), which is uniform.
            mixed = regularise.sharpened_mix(one, other, drawn[0, 0], config.mix_temperature)
            loss = regularise.classification(mixed, batch.labels, config.double_softmax)
            q, q_other = (regularise.distilled(logits, config.sharpness) for logits in (one, other))
            if consistency_weight > 0:
                loss = loss + consistency_weight * regularise.disagreement(q, q_other, config.consistency_mean)
            if config.entropy_weight > 0:
                loss = loss + config.entropy_weight * regularise.entropy(q, q_other, config.double_softmax)
            return loss

        module = client.module(model)
        loss = methods.local_training.train_with(client, module, loss_of, config)
        return methods.local_training.trained_reply(client, module, loss)

    def second_view(self, client: Client) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function (normalised images, draws (n, 7)) → normalised images with mirrors and other colours."""
        from fedsir.data import colour

        preprocessing, view = client.data.preprocessing, self.config.view
        mean, std = (colour.per_channel(values, client.device) for values in (preprocessing.mean, preprocessing.std))

        def changed(images: Tensor, draws: Tensor) -> Tensor:
            if preprocessing.flip:  # a mirrored digit is none
                images = colour.mirror(images, draws[:, 0])
            return colour.colour_view(
                images,
                draws[:, 1:],
                strength=view.strength,
                hue=view.hue,
                jitter_chance=view.jitter_chance,
                grey_chance=view.grey_chance,
            )

        if view.of == "normalised":
            return lambda images, draws: changed(images, draws[:1].expand(len(images), -1))
        return lambda images, draws: (changed((images * std + mean).clamp(0, 1), draws) - mean) / std
