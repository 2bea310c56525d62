"""FedELC's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsir.methods.loss_identification_settings import LossIdentificationConfig
from fedsir.methods.settings import Settings


class LabelCorrection(Settings):
    """Label correction on noisy clients."""

    lr: float = Field(1000.0, ge=0, description="learning rate of the label logits (λ), for batches of 64")
    compatibility: float = Field(0.5, ge=0, description="pull towards the given label (α)")
    entropy: float = Field(0.2, ge=0, description="pull towards confident predictions (β)")
    scale: float = Field(10.0, gt=0, description="label logit of a certain label (K)")
    predict: Literal["plain", "training"] = Field(
        "plain",
        description="predictions that labels are merged with: plain images in evaluation mode, or as in training",
    )


class FedELCConfig(LossIdentificationConfig):
    warm_up_share = 0.2
    labels: LabelCorrection = LabelCorrection()
