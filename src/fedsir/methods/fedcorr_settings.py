"""FedCorr's settings."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from fedsir.methods.settings import MethodConfig, left_open, per_hundred


class FedCorrConfig(MethodConfig):
    iterations: int = per_hundred(
        5,
        least=1,
        ge=1,
        description="rounds of pre-processing, each of which visits every client (T₁); 5 per 100",
    )
    fine_tuning_rounds: int = left_open(
        ge=0, description="rounds on nearly clean clients alone (T₂); 50 per 100; the rest is usual training"
    )
    visits_at_once: int = Field(1, ge=1, description="clients that train from one model in pre-processing (frac₁ · K)")
    mixup: bool = Field(True, description="train on mixed pairs of images")
    proximal_weight: float = Field(5.0, ge=0, description="β: keeps noisy clients near the global model; times μ̂")
    proximal_norm: Literal["plain", "squared"] = Field(
        "plain", description="‖w - w_global‖ as published, or its square as in the paper"
    )
    n_neighbours: int = Field(20, ge=2, description="neighbours behind an intrinsic dimension (k)")
    double_softmax: bool = Field(
        True, description="sample losses put probabilities through a softmax again, as published"
    )
    accumulate_losses: bool = Field(
        False, description="sample losses summed over iterations as in the paper, or of the last one as published"
    )
    relabel_share: float = Field(0.5, ge=0, le=1, description="of the samples thought wrong, those to correct (π)")
    confidence: float = Field(0.5, ge=0, lt=1, description="a label is replaced where the prediction is surer (θ)")
    clean_level: float = Field(
        0.1, ge=0, le=1, description="clients up to this noise level μ̂ take part in fine-tuning (κ)"
    )

    def resolved(self, rounds: int) -> Self:
        filled = super().resolved(rounds)
        if self.fine_tuning_rounds is not None:
            return filled
        # Half of the rounds, but at least one round of usual training is left.
        fine_tuning = max(0, min(max(1, round(0.5 * rounds)), rounds - filled.iterations - 1))
        return filled.model_copy(update={"fine_tuning_rounds": fine_tuning})
