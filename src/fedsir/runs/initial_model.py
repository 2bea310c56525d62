"""The model that a run starts from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.models.build import build_model, training_model
from fedsir.models.weights import load_pretrained, weights_of
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from torch import nn

    from fedsir.data.federation import FederatedData
    from fedsir.methods.base import Weights
    from fedsir.runs.config import RunConfig


@dataclass(frozen=True)
class InitialModel:
    """A run's first model.

    Attributes
    ----------
    stock : in the layout of files
    module : as clients train it
    weights : of `module`
    source : where pretrained weights came from, for provenance.json
    """

    stock: nn.Module
    module: nn.Module
    weights: Weights
    source: dict[str, Any]


def _stock_model(config: RunConfig, data: FederatedData) -> nn.Module:
    """Return the model of these settings for these data, with random weights that the seed decides."""
    return build_model(
        config.model,
        n_classes=data.n_classes,
        in_channels=data.channels,
        random=KeyedRandom(config.seed, ("model",)),
        image_size=data.image_size,
    )


def initial_model(config: RunConfig, data: FederatedData, data_dir: Path, *, download: bool) -> InitialModel:
    """Return the model that a run with these settings starts from; pretrained weights lie in `data_dir`."""
    stock = _stock_model(config, data)
    source = load_pretrained(stock, config.model.weights, data_dir, download=download)
    module = training_model(stock, config.model.name, data.image_size)
    return InitialModel(stock, module, weights_of(module), dict(source))
