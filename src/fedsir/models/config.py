"""Which model to train and where its first weights come from; readable without importing torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from fedsir.errors import did_you_mean

ENTRY_POINT_GROUP = "fedsir.models"
IMAGENET_FILES = ("resnet18-f37072fd.pth", "resnet18-imagenet.safetensors")  # torchvision's own is looked for first
WEIGHT_SUFFIXES = (".safetensors", ".pth")
_DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


@dataclass(frozen=True)
class BuiltinModel:
    """A model that comes with fedsir: one line for listings and where its class is."""

    summary: str
    target: str  # "package.module:Class", imported only when the model is built


MODELS: dict[str, BuiltinModel] = {
    "small_cnn": BuiltinModel(
        "three convolutions, for images from 8×8 upward; trains in seconds on a processor",
        "fedsir.models.small_cnn:SmallCNN",
    ),
    "strided_cnn": BuiltinModel(
        "the same, but its convolutions step over pixels: for images of 32×32 and more without pretrained weights",
        "fedsir.models.small_cnn:StridedCNN",
    ),
    "resnet18": BuiltinModel(
        "ResNet-18; takes ImageNet weights; several times faster than stock on images up to 32×32",
        "fedsir.models.resnet18:ResNet18",
    ),
    "resnet18_stock": BuiltinModel(
        "the same network, every convolution computed in full, as torchvision does",
        "fedsir.models.resnet18:ResNet18",
    ),
}


def model_entry_points() -> dict[str, EntryPoint]:
    """Return installed packages' models by name; a name that fedsir itself uses stays fedsir's."""
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value))
    return {point.name: point for point in found if point.name not in MODELS}


def available_models() -> dict[str, str]:
    """Return every model that can be named, with one line about each."""
    from_packages = {name: f"from {point.value}" for name, point in model_entry_points().items()}
    return {name: model.summary for name, model in MODELS.items()} | from_packages


def imagenet_file(data_dir: Path) -> Path | None:
    """Return the ImageNet weights of ResNet-18 in the data directory, None if there are none."""
    return next((data_dir / name for name in IMAGENET_FILES if (data_dir / name).is_file()), None)


def is_dotted(name: str) -> bool:
    """Tell whether ``name`` is "package.module:Class", that is, code to import rather than a listed model."""
    return ":" in name


class ModelConfig(BaseModel):
    """The model every client trains."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(
        default="small_cnn",
        description='"small_cnn", "strided_cnn", "resnet18", an installed model (entry point of group '
        '"fedsir.models"), or, from Python only, "package.module:Class"',
    )
    weights: str = Field(
        default="none",
        description='first weights: "none" (random), "imagenet" (resnet18 only, from the data directory), or '
        "the path of a .safetensors or .pth state dict; the classifier always starts fresh",
    )

    @property
    def is_pretrained(self) -> bool:
        """Whether the first weights are not random."""
        return self.weights != "none"

    @field_validator("name")
    @classmethod
    def _name_is_known(cls, name: str) -> str:
        if is_dotted(name):
            if not _DOTTED.fullmatch(name):
                raise ValueError(f"model name {name!r} is not of the form 'package.module:Class'")
        elif name not in MODELS and name not in (known := available_models()):
            raise ValueError(f"unknown model {name!r}; known: {', '.join(known)}.{did_you_mean(name, known)}")
        return name

    @field_validator("weights")
    @classmethod
    def _weights_can_be_read(cls, weights: str) -> str:
        if weights not in ("none", "imagenet") and not weights.endswith(WEIGHT_SUFFIXES):
            raise ValueError(
                f"weights {weights!r} are not 'none', 'imagenet' or the path of a .safetensors or .pth file"
            )
        return weights

    @model_validator(mode="after")
    def _imagenet_is_resnet18(self) -> ModelConfig:
        if self.weights == "imagenet" and not self.name.startswith("resnet18"):
            raise ValueError(f"model.weights=imagenet goes with resnet18 only, not {self.name}; use model.weights=none")
        return self
