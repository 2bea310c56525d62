"""The settings that FedNoRo and FedELC share."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator

from fedsir.methods.settings import MethodConfig, Settings, left_open


class Identify(Settings):
    """When and how clients are told apart."""

    after: int | float = left_open(
        ge=0,
        description="rounds of warm-up before it (s₁), below 1 as a share; per 100 rounds 10 in FedNoRo, 20 in FedELC",
    )
    images: Literal["augmented", "plain"] = Field("augmented", description="images behind the losses")

    @field_validator("after")
    @classmethod
    def _is_whole_or_a_share(cls, after: float) -> float:
        if after >= 1 and not float(after).is_integer():
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

    def resolved(self, rounds: int) -> Self:
        filled = super().resolved(rounds)
        after = self.warm_up_share if self.identify.after is None else self.identify.after
        after = max(1, round(after * rounds)) if 0 < after < 1 else int(after)
        return filled.model_copy(update={"identify": filled.identify.model_copy(update={"after": after})})
