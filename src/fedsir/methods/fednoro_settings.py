"""FedNoRo's settings."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from fedsir.methods.loss_identification_settings import LossIdentificationConfig
from fedsir.methods.settings import Settings, left_open


class Distillation(Settings):
    """Distillation on noisy clients."""

    weight: float = Field(0.8, ge=0, le=1, description="λ at its peak; 0 = no distillation")
    temperature: float = Field(0.8, gt=0, description="τ of the teacher")
    ramp_begin: float = left_open(ge=0, description="round r (from 0) where the ramp begins; where the warm-up ends")
    ramp_end: float = left_open(
        ge=0, description="round r where it ends; 49 of 100, 39/90 of those after the warm-up; ≤ begin = no ramp"
    )


class FedNoRoConfig(LossIdentificationConfig):
    warm_up_share = 0.1
    kd: Distillation = Distillation()

    def resolved(self, rounds: int) -> Self:
        filled = super().resolved(rounds)
        after, begin, end = filled.identify.after, self.kd.ramp_begin, self.kd.ramp_end
        ramp = {
            "ramp_begin": after if begin is None else begin,
            "ramp_end": after + max(0, rounds - after) * 39 / 90 if end is None else end,
        }
        return filled.model_copy(update={"kd": self.kd.model_copy(update=ramp)})
