"""FedNoRo (Wu et al., IJCAI 2023): finds noisy clients by their losses, distils the global model into them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Self

from pydantic import Field

from fedsir import methods, stages
from fedsir.methods.base import Client, ClientId, Federation, Reply, Settings, Weights, client_task
from fedsir.methods.loss_identification import LossIdentification, LossIdentificationConfig

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.local_training import Batch


class Distillation(Settings):
    """Distillation on noisy clients."""

    weight: float = Field(0.8, ge=0, le=1, description="λ at its peak; 0 = no distillation")
    temperature: float = Field(0.8, gt=0, description="τ of the teacher")
    ramp_begin: float | None = Field(
        None, ge=0, description="round r (from 0) where the ramp begins; where the warm-up ends"
    )
    ramp_end: float | None = Field(
        None, ge=0, description="round r where it ends; 49 of 100, 39/90 of those after the warm-up; ≤ begin = no ramp"
    )


class FedNoRoConfig(LossIdentificationConfig):
    warm_up_share = 0.1
    kd: Distillation = Distillation()

    def scaled_to(self, rounds: int) -> Self:
        scaled = super().scaled_to(rounds)
        after, begin, end = scaled.identify.after, self.kd.ramp_begin, self.kd.ramp_end
        assert after is not None, "filled in above"
        ramp = {
            "ramp_begin": after if begin is None else begin,
            "ramp_end": after + max(0, rounds - after) * 39 / 90 if end is None else end,
        }
        return scaled.model_copy(update={"kd": self.kd.model_copy(update=ramp)})


class FedNoRo(LossIdentification):
    name = "fednoro"
    summary = "finds noisy clients by their losses, distils the global model into them, weighs them by distance"
    Config = FedNoRoConfig
    config: FedNoRoConfig

    def ask_noisy(self, t: int, noisy: Sequence[ClientId], model: Weights, fed: Federation) -> Mapping[ClientId, Reply]:
        kd_weight = self.kd_weight(t)
        fed.record(kd_weight=kd_weight)
        return fed.ask("train_noisy", noisy, model=model, kd_weight=kd_weight)

    def kd_weight(self, t: int) -> float:
        kd = self.config.kd
        assert kd.ramp_begin is not None and kd.ramp_end is not None, "scaled_to fills them in"
        return stages.train.kd_ramp(t - 1, peak=kd.weight, begin=kd.ramp_begin, end=kd.ramp_end)

    def extra_epochs(self) -> float:
        teacher_forward = 0.2 if self.config.kd.weight > 0 else 0.0
        return self.config.epochs * teacher_forward

    @client_task
    def train_noisy(self, client: Client, model: Weights, kd_weight: float) -> Reply:
        """Train on the given labels with logit adjustment, distilling the global model of the round's beginning."""
        adjustment = self.adjustment(client)
        teacher = client.module(model)

        def loss_of(module: nn.Module, batch: Batch) -> Tensor:
            return stages.train.la_kd_loss(
                module(batch.images),
                methods.local_training.teacher_logits(teacher, batch.images),
                batch.labels,
                adjustment,
                weight=kd_weight,
                temperature=self.config.kd.temperature,
            )

        module = client.module(model)
        loss = methods.local_training.train_with(client, module, loss_of, self.config)
        return methods.local_training.trained_reply(client, module, loss)
