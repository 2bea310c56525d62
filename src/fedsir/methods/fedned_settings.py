"""FedNed's settings."""

from __future__ import annotations

from pydantic import Field

from fedsir.methods.settings import MethodConfig, per_hundred


class FedNedConfig(MethodConfig):
    needs_public = True

    warm_up: int = per_hundred(10, ge=0, description="rounds of plain averaging first; 10 per 100 rounds")
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
