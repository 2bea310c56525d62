"""FedLSR's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsir.methods.settings import MethodConfig, Settings, per_hundred


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
    warm_up: float = per_hundred(20, ge=0, description="rounds over which γ grows from 0 (t_w); 20 per 100 rounds")
    entropy_weight: float = Field(0.3, ge=0, description="weight of the entropy, which is minimised (λ_e); 0 = paper")
    view: View = View()
