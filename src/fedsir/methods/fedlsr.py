"""FedLSR (Jiang et al., Towards Federated Learning against Noisy Labels via Local Self-Regularization, CIKM 2022).

FedAvg with another local loss: two views of every image, mixed for the classification, compared for consistency.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from fedsir.data import colour
from fedsir.methods import fedlsr_math as maths
from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import Client, Federation, Method, ServerState, client_task
from fedsir.methods.baseline_settings import FedLSRConfig
from fedsir.methods.local_training import Batch, StepDraws, train_with, trained
from fedsir.methods.replies import Trained, Weights
from fedsir.methods.settings import risen


class FedLSR(Method[FedLSRConfig, ServerState]):
    name = "fedlsr"
    Config = FedLSRConfig

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        weight = self.consistency_weight(t)
        replies = fed.ask(self.train, fed.participants, model=state.model, consistency_weight=weight)
        fed.record(loss=mean_loss(replies), consistency_weight=weight)
        return ServerState(model=average_by_samples(replies) if replies else state.model)

    def consistency_weight(self, t: int) -> float:
        """Return γ(r) for r = t - 1."""
        return self.config.consistency_weight * risen(t, self.config.warm_up)

    # ------------------------------------------------------------------ on the client

    @client_task
    def train(self, client: Client, model: Weights, consistency_weight: float) -> Trained:
        """Train on the given labels with two views of every image; asked of the participants of every round."""
        draws = StepDraws(client, "views", self.config.epochs, colour.N_DRAWS + 2)
        second_view = self.second_view(client)
        config = self.config

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            drawn = draws.take(len(batch.index))
            one, other = module(batch.images), module(second_view(batch.images, drawn[:, 1:]))
            # λ of the whole batch is Beta(1, 1), which is uniform.
            mixed = maths.sharpened_mix(one, other, drawn[0, 0], config.mix_temperature)
            loss = maths.classification(mixed, batch.labels, config.double_softmax)
            q, q_other = (maths.distilled(logits, config.sharpness) for logits in (one, other))
            if consistency_weight > 0:
                loss = loss + consistency_weight * maths.disagreement(q, q_other, config.consistency_mean)
            if config.entropy_weight > 0:
                loss = loss + config.entropy_weight * maths.entropy(q, q_other, config.double_softmax)
            return loss

        module = client.module(model)
        return trained(client, module, train_with(self, client, module, loss_of))

    def second_view(self, client: Client) -> Callable[[Tensor, Tensor], Tensor]:
        """Return a function (normalised images, draws (n, 7)) → normalised images with mirrors and other colours."""
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
