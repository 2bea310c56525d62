"""FedProx's settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsir.methods.settings import MethodConfig

Norm = Literal["squared", "plain"]


class FedProxConfig(MethodConfig):
    proximal_weight: float = Field(0.2, ge=0, description="how strongly clients are held back (μ); 0 = FedAvg")
    proximal_norm: Norm = Field(
        "squared", description="½ μ ‖w - w_g‖² over all parameters, or ½ μ Σ ‖w - w_g‖ tensor by tensor"
    )
