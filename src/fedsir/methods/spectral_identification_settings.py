"""Stage I's settings, as FedSIR and Pruning have them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsir.methods.settings import MethodConfig, Settings


class Identify(Settings):
    """Stage I."""

    epochs: int = Field(5, ge=0, description="local epochs before the spectra (E₁); 0 = untouched initial model")
    lr: float = Field(5e-5, gt=0, description="Adam's learning rate")
    weight_decay: float = Field(5e-2, ge=0, description="L2 penalty inside Adam")
    min_class_samples: int = Field(20, ge=1, description="classes with fewer samples do not count")
    features: Literal["augmented", "plain"] = Field("augmented", description="images behind the spectra")
    split: Literal["always", "auto"] = Field(
        "always", description="two groups always, or only where the evidence speaks for them"
    )


class SpectralConfig(MethodConfig):
    identify: Identify = Identify()
