"""Building: decided by the key alone, nothing global touched, and the contract kept or refused."""

import math
import sys
import types

import pytest
import torch
from torch import Tensor, nn

from fedsir.errors import ConfigError
from fedsir.models import config as model_config
from fedsir.models.build import build_model
from fedsir.models.config import ModelConfig
from fedsir.models.initialise import initialise
from fedsir.models.weights import weights_of, weights_sha256
from fedsir.randomness import KeyedRandom


class Good(nn.Module):
    """The least model that keeps the contract, with weights from the global generator."""

    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__()
        self.frozen = nn.BatchNorm2d(in_channels).eval()
        self.body = nn.Linear(in_channels, 6)
        self.head = nn.Linear(6, n_classes)

    def features(self, x: Tensor) -> Tensor:
        return self.body(self.frozen(x).mean(dim=(2, 3))).relu()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class NoFeatures(nn.Module):
    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__()
        self.head = nn.Linear(in_channels, n_classes)


class NoHead(Good):
    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__(n_classes, in_channels)
        self.head = nn.Sequential(nn.Linear(6, n_classes))


class WrongClasses(Good):
    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__(n_classes + 1, in_channels)


class FlatlessFeatures(Good):
    def features(self, x: Tensor) -> Tensor:
        return super().features(x)[:, :, None]

    def forward(self, x: Tensor) -> Tensor:
        return self.head(super().features(x))


class OtherForward(Good):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x)).softmax(1)


class NarrowForward(Good):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))[:, :1]


class OneSizeOnly(Good):
    def features(self, x: Tensor) -> Tensor:
        return super().features(x.reshape(-1, 1, 12, 12))


class OtherArguments(Good):
    def __init__(self, classes: int) -> None:
        super().__init__(classes, 1)


NOT_A_MODULE = "a string"


@pytest.fixture(autouse=True)
def nets_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this file's classes importable under one sure name, whatever pytest calls the file."""
    module = types.ModuleType("nets_for_tests")
    module.__dict__.update({k: v for k, v in globals().items() if not k.startswith("_")})
    monkeypatch.setitem(sys.modules, "nets_for_tests", module)


def build(name: str, seed: int = 0, in_channels: int = 1, image_size: tuple[int, int] = (8, 8)) -> nn.Module:
    config = ModelConfig(name=name)
    random = KeyedRandom(seed, ("model",))
    return build_model(config, n_classes=4, in_channels=in_channels, random=random, image_size=image_size)


@pytest.mark.parametrize("name", ["small_cnn", "resnet18", "nets_for_tests:Good"])
def test_the_key_alone_decides(name: str) -> None:
    first = weights_sha256(weights_of(build(name)))
    torch.rand(5)  # moves the global generator
    assert weights_sha256(weights_of(build(name))) == first
    assert weights_sha256(weights_of(build(name, seed=1))) != first


@pytest.mark.parametrize("name", ["small_cnn", "resnet18", "nets_for_tests:Good"])
def test_the_global_generator_is_left_as_it_was(name: str) -> None:
    before = torch.get_rng_state()
    build(name)
    assert torch.equal(torch.get_rng_state(), before)


def test_first_weights_are_pinned() -> None:
    # Changes only when the network or its initialisation does, and then every published run does too.
    model = build("small_cnn")
    first = next(iter(weights_of(model).values())).flatten()[:3].tolist()
    assert first == pytest.approx([-0.0625849, 0.0944567, -0.0261043], abs=1e-6)


@pytest.mark.parametrize("name", ["small_cnn", "resnet18"])
def test_first_weights_follow_their_distributions(name: str) -> None:
    model = build(name)
    assert model.training
    for key, tensor in weights_of(model).items():
        if key == "head.weight" or key.startswith("fc."):
            bound = 1 / math.sqrt(model.head.in_features)
            assert tensor.abs().max() <= bound, key
            assert tensor.unique().numel() > 1, key
        elif tensor.ndim == 4:
            out_channels, _, height, width = tensor.shape
            expected = math.sqrt(2 / (out_channels * height * width))
            error_of_std = expected / math.sqrt(2 * tensor.numel())
            assert abs(tensor.std().item() - expected) < 5 * error_of_std, key
            assert abs(tensor.mean().item()) < 5 * expected / math.sqrt(tensor.numel()), key
        elif key.endswith(("running_var", "weight")) and tensor.ndim == 1:
            assert torch.equal(tensor, torch.ones_like(tensor)), key
        elif not key.startswith("head."):
            assert not tensor.any(), key


def test_the_trial_leaves_no_trace() -> None:
    model = build("nets_for_tests:Good")
    assert model.training
    assert not model.frozen.training
    assert model.frozen.num_batches_tracked == 0
    assert all(parameter.grad is None for parameter in model.parameters())


def test_an_installed_model_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    point = types.SimpleNamespace(name="plugged", value="nets_for_tests:Good")
    monkeypatch.setattr(model_config, "entry_points", lambda group: [point])
    assert isinstance(build("plugged"), Good)


def test_an_uninstalled_model_is_named() -> None:
    config = ModelConfig.model_construct(name="smal_cnn", weights="none")
    with pytest.raises(ConfigError, match=r"unknown model 'smal_cnn'.*Did you mean 'small_cnn'"):
        build_model(config, n_classes=4, in_channels=1, random=KeyedRandom(0))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NoFeatures", r"no method features"),
        ("NoHead", r"no attribute head that is a torch.nn.Linear"),
        ("WrongClasses", r"head with 5 outputs for 4 classes"),
        ("FlatlessFeatures", r"features\(x\) of \(2, 6, 1\).*needs \(2, 6\)"),
        ("OtherForward", r"forward\(x\) that is not head\(features\(x\)\)"),
        ("NarrowForward", r"logits of shape \(n, 4\)"),
        ("OneSizeOnly", r"fails on images of shape \(2, 1, 8, 8\)"),
        ("OtherArguments", r"cannot be called with n_classes"),
        ("NOT_A_MODULE", r"is not a torch.nn.Module class"),
        ("Missing", r"cannot be imported.*Missing"),
    ],
)
def test_a_broken_contract_is_named(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build(f"nets_for_tests:{name}")
    assert f"nets_for_tests:{name}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_trial_image_has_the_size_of_the_data() -> None:
    assert isinstance(build("nets_for_tests:OneSizeOnly", image_size=(12, 12)), OneSizeOnly)


def test_a_missing_package_is_named() -> None:
    with pytest.raises(ConfigError, match="no_such_package"):
        build("no_such_package.nets:Net")


def test_a_layer_without_first_weights_is_an_error() -> None:
    with pytest.raises(TypeError, match="LayerNorm"):
        initialise(nn.Sequential(nn.LayerNorm(3)), torch.Generator())
