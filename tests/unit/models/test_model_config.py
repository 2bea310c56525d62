"""Model settings: read without torch, and wrong ones refused with what to do."""

import subprocess
import sys

import pytest
from pydantic import ValidationError

from fedsir.models import config as model_config
from fedsir.models.config import MODELS, ModelConfig, available_models


class FakeEntryPoint:
    def __init__(self, name: str, value: str) -> None:
        self.name, self.value = name, value


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [FakeEntryPoint("tiny", "plug.nets:Tiny"), FakeEntryPoint("resnet18", "plug.nets:Impostor")]
    monkeypatch.setattr(model_config, "entry_points", lambda group: points if group == "fedsir.models" else [])


def test_defaults() -> None:
    config = ModelConfig()
    assert (config.name, config.weights) == ("small_cnn", "none")
    assert ModelConfig.model_validate(config.model_dump()) == config


def test_listing_models_does_not_import_torch() -> None:
    code = (
        "import sys; from fedsir.models.config import ModelConfig, available_models; ModelConfig(); "
        "assert {'small_cnn', 'resnet18'} <= set(available_models()); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_field_is_described() -> None:
    assert all(field.description for field in ModelConfig.model_fields.values())


def test_installed_models_are_listed_and_accepted(installed: None) -> None:
    assert available_models()["tiny"] == "from plug.nets:Tiny"
    assert ModelConfig(name="tiny").name == "tiny"


def test_an_installed_model_cannot_take_a_builtin_name(installed: None) -> None:
    assert available_models()["resnet18"] == MODELS["resnet18"].summary


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "resnet81"}, "unknown model 'resnet81'.*Did you mean 'resnet18'"),
        ({"name": "a-b:C"}, "package.module:Class"),
        ({"name": ":C"}, "package.module:Class"),
        ({"weights": "magic"}, "'magic'"),
        ({"weights": "model.pkl"}, "safetensors or .pth"),
        ({"weights": "imagenet"}, "resnet18 only, not small_cnn"),
        ({"width": 32}, "Extra inputs"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "resnet18", "weights": "imagenet"},
        {"name": "small_cnn", "weights": "mine/start.safetensors"},
        {"name": "my_package.nets:Net", "weights": "mine/start.pth"},
    ],
)
def test_right_settings_are_accepted(settings: dict[str, str]) -> None:
    assert ModelConfig.model_validate(settings).model_dump() == settings
