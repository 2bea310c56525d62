"""First weights of the built-in models, from an explicit generator."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Generator


def initialise(model: nn.Module, generator: Generator) -> None:
    """Fill every parameter and buffer of ``model``, drawing in the order of ``model.modules()``.

    Convolutions: N(0, 2 / fan_out) (He et al. 2015), as for the published ResNet-18; linear layers:
    U(-1/√d, 1/√d) with d inputs, torch's own default; batch normalisation: the identity.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu", generator=generator)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Linear):
            bound = 1 / math.sqrt(module.in_features)
            nn.init.uniform_(module.weight, -bound, bound, generator=generator)
            nn.init.uniform_(module.bias, -bound, bound, generator=generator)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()  # weight 1, bias 0, running mean 0 and variance 1: draws nothing
        elif any(True for _ in (*module.parameters(recurse=False), *module.buffers(recurse=False))):
            # Memory made by `torch.nn.Module.to_empty` would otherwise reach training as it was found.
            raise TypeError(f"no first weights are defined for {type(module).__name__}")


def build_empty(make: type[nn.Module], *, n_classes: int, in_channels: int) -> nn.Module:
    """Return ``make(...)`` with its tensors allocated but not filled; draws nothing from any generator."""
    with torch.device("meta"):
        model = make(n_classes=n_classes, in_channels=in_channels)
    return model.to_empty(device="cpu")
