"""The model that a run starts from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.models.build import build_model, checked_model, training_model
from fedsir.models.weights import load_pretrained, weights_of
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.data.federation import FederatedData
    from fedsir.models.config import ModelConfig

ModelFactory = Callable[..., "nn.Module"]
"""Called as factory(n_classes=…, in_channels=…); the module has `features` and `head`, see `fedsir.models.build`."""


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
    weights: dict[str, Tensor]
    source: dict[str, Any]

    @property
    def is_pretrained(self) -> bool:
        """Whether weights came from a file; nobody knows of a caller's own model."""
        return self.source.get("file") is not None

    @property
    def n_features(self) -> int:
        """Inputs of the classifier."""
        return int(self.module.head.in_features)  # type: ignore[union-attr, arg-type]


def initial_model(
    config: ModelConfig, data: FederatedData, *, seed: int, data_dir: Path, download: bool = False
) -> InitialModel:
    """Return the model that a run starts from, the same for the same seed; pretrained weights lie in `data_dir`."""
    stock = build_model(
        config,
        n_classes=data.n_classes,
        in_channels=data.channels,
        random=KeyedRandom(seed, ("model",)),
        image_size=data.image_size,
    )
    source = load_pretrained(stock, config.weights, data_dir, download=download)
    module = training_model(stock, config.name, data.image_size)
    return InitialModel(stock, module, weights_of(module), dict(source))


def model_from_factory(factory: ModelFactory, data: FederatedData, *, seed: int) -> InitialModel:
    """Return the model that a caller's own function makes; its weights are its own affair, but drawn from the seed."""
    module = checked_model(
        factory,
        getattr(factory, "__name__", repr(factory)),
        n_classes=data.n_classes,
        in_channels=data.channels,
        random=KeyedRandom(seed, ("model",)),
        image_size=data.image_size,
    )
    return InitialModel(module, module, weights_of(module), {"kind": "own model"})
