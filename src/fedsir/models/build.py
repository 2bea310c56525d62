"""From a `ModelConfig` to a model that keeps the contract: ``features``, ``head``, and nothing between them.

Any ``torch.nn.Module`` class can be used. It is called as ``Class(n_classes=…, in_channels=…)`` and must have
``features(x)``, (n, in_channels, h, w) -> (n, d), and ``head``, a ``torch.nn.Linear(d, n_classes)``, with
``forward(x) == head(features(x))``.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedsir.errors import ConfigError, did_you_mean
from fedsir.models.compact_resnet18 import LARGEST_SIDE, CompactResNet18, full_weights
from fedsir.models.config import MODELS, ModelConfig, available_models, is_dotted, model_entry_points
from fedsir.models.initialise import build_empty, initialise
from fedsir.models.resnet18 import ResNet18

if TYPE_CHECKING:
    from fedsir.randomness import KeyedRandom


def build_model(
    config: ModelConfig,
    *,
    n_classes: int,
    in_channels: int,
    random: KeyedRandom,
    image_size: tuple[int, int] = (32, 32),
) -> nn.Module:
    """Return a fresh model on the CPU, the same for the same ``random``; the global generator is not used.

    Pretrained weights are a step of their own: `fedsir.models.weights.load_pretrained`.

    ``image_size`` is the height and width of the images on which the contract is tried.
    """
    cls = _model_class(config.name)
    if config.name in MODELS:
        model = build_empty(cls, n_classes=n_classes, in_channels=in_channels)
        initialise(model, random.for_torch())
        _check_contract(model, config.name, n_classes, in_channels, image_size)
        return model
    return checked_model(
        cls, config.name, n_classes=n_classes, in_channels=in_channels, random=random, image_size=image_size
    )


def checked_model(
    make: Callable[..., nn.Module],
    name: str,
    *,
    n_classes: int,
    in_channels: int,
    random: KeyedRandom,
    image_size: tuple[int, int],
) -> nn.Module:
    """Return the model that another author's class or function makes, once it keeps the contract."""
    # It fills its own weights (it may even load some), so only the source of its randomness can be set: the global
    # generator holds this model's stream while it is built and tried.
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(random.for_torch().get_state())
        try:
            model = make(n_classes=n_classes, in_channels=in_channels)
        except TypeError as problem:
            raise ConfigError(
                f"model {name!r} cannot be called with n_classes=…, in_channels=… ({problem}): give a class, or a "
                "function that makes the model."
            ) from problem
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model {name!r} is a {type(model).__name__}, not a torch.nn.Module")
        _check_contract(model, name, n_classes, in_channels, image_size)
    return model


def training_model(stock: nn.Module, name: str, image_size: tuple[int, int]) -> nn.Module:
    """Return the module that clients train: the stock model's faster twin where there is one, else itself."""
    if name == "resnet18" and isinstance(stock, ResNet18) and max(image_size) <= LARGEST_SIDE:
        return CompactResNet18(stock, image_size)
    return stock


def exported_weights(trained: dict[str, Tensor], module: nn.Module, stock: nn.Module) -> dict[str, Tensor]:
    """Return what `module` learned in the stock model's layout, for files that others read."""
    if isinstance(module, CompactResNet18):
        return full_weights(trained, module, stock.state_dict())
    return trained


def _model_class(name: str) -> type[nn.Module]:
    """Return the class that ``name`` stands for, or say why there is none."""
    if name in MODELS:
        found = _import(MODELS[name].target, name)
    elif is_dotted(name):
        found = _import(name, name)
    elif (point := model_entry_points().get(name)) is not None:
        found = _import(point.value, name)
    else:
        known = available_models()
        raise ConfigError(f"unknown model {name!r}; known: {', '.join(known)}.{did_you_mean(name, known)}")
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise ConfigError(f"model {name!r} is not a torch.nn.Module class")
    try:
        inspect.signature(found).bind(n_classes=2, in_channels=1)
    except TypeError as error:
        raise ConfigError(f"model {name!r} cannot be called with n_classes=…, in_channels=…: {error}") from error
    return found


def _import(target: str, name: str) -> Any:
    module_name, _, attribute = target.partition(":")
    try:
        return reduce(getattr, attribute.split("."), importlib.import_module(module_name))
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"model {name!r} cannot be imported from {target}: {error}") from error


def _check_contract(model: nn.Module, name: str, n_classes: int, in_channels: int, image_size: tuple[int, int]) -> None:
    """Try the model on two images and raise a `ConfigError` that names what it lacks."""

    def refuse(what: str) -> ConfigError:
        return ConfigError(f"model {name!r} {what}")

    if not callable(features_of := getattr(model, "features", None)):
        raise refuse("has no method features(x)")
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise refuse("has no attribute head that is a torch.nn.Linear")
    if head.out_features != n_classes:
        raise refuse(f"has a head with {head.out_features} outputs for {n_classes} classes")

    # A ramp rather than noise: it draws nothing. Evaluation mode: batch statistics stay as they are.
    shape = (2, in_channels, *image_size)
    images = torch.linspace(-1, 1, 2 * in_channels * image_size[0] * image_size[1]).view(shape)
    was_training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.no_grad():
            features, logits = features_of(images), model(images)
    except Exception as error:
        raise refuse(f"fails on images of shape {shape}: {error}") from error
    finally:
        for module, training in was_training.items():
            module.training = training

    if not isinstance(features, Tensor) or features.shape != (2, head.in_features):
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise refuse(f"has features(x) of {got} for two images; its head needs (2, {head.in_features})")
    with torch.no_grad():
        expected = head(features)
    if not isinstance(logits, Tensor) or logits.shape != expected.shape:
        raise refuse(f"does not return logits of shape (n, {n_classes})")
    if not torch.allclose(logits, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
        raise refuse("has a forward(x) that is not head(features(x))")
