"""RoFL's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsir.methods.settings import MethodConfig, per_hundred


class RoFLConfig(MethodConfig):
    forget_rate: float = Field(0.2, ge=0, lt=1, description="share of a batch with the largest loss left out (F)")
    forget_ramp: float = per_hundred(
        10, ge=0, description="rounds over which that share grows from 0 (T_k); 10 per 100 rounds"
    )
    pseudo_label_from: float = per_hundred(
        10, ge=0, description="round r from which pseudo-labels are used (T_pl); 10 per 100 rounds"
    )
    central_weight: float = Field(1.0, ge=0, description="weight of the distance to centroids (λ_cen)")
    central_gradient: bool = Field(
        False, description="whether that distance has a gradient: the published code has none, the paper has"
    )
    entropy_weight: float = Field(0.8, ge=0, description="weight of the entropy, which is minimised (λ_e)")
    average: Literal["clients", "samples"] = Field("clients", description="models averaged alike, or by sample count")
