"""Weights as named tensors: taking and setting them, their fingerprint, and pretrained files."""

from __future__ import annotations

import hashlib
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import safetensors.torch
import torch
from torch import Tensor, nn

from fedsir.errors import DataError
from fedsir.models.config import IMAGENET_FILES, imagenet_file
from fedsir.models.resnet18 import ResNet18, grey_stem

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFICIAL_FILE, OTHER_FILE = IMAGENET_FILES
OFFICIAL_URL = f"https://download.pytorch.org/models/{OFFICIAL_FILE}"
OFFICIAL_SHA256 = "f37072fd47e89c5e827621c5baffa7500819f7896bbacec160b1a16c560e07ec"


class Provenance(TypedDict):
    """Where a model's first weights came from."""

    file: str | None  # name of the file, without its folder
    sha256: str | None  # of the whole file
    kind: str  # "random", "torchvision", "imagenet, not the official file" or "own file"
    note: str | None  # what a reader of the results should know


# ---------------------------------------------------------------- weights in memory


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all parameters and buffers, in the model's order."""
    return {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }


def load_weights(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Set all parameters and buffers; names, shapes and types must fit exactly, else nothing is changed."""
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in weights:
            raise DataError(f"weights lack {name!r}, which {type(model).__name__} has")
        given = weights[name]
        if given.shape != tensor.shape or given.dtype != tensor.dtype:
            raise DataError(
                f"weights {name!r} are {tuple(given.shape)} {given.dtype}, "
                f"but {type(model).__name__} has {tuple(tensor.shape)} {tensor.dtype}"
            )
    if unknown := sorted(weights.keys() - own.keys()):
        raise DataError(f"weights hold {unknown[0]!r}, which {type(model).__name__} does not have")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(weights[name])


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 of names, types, shapes and little-endian bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        # One JSON line each: where the bytes that follow end is known, so no two sets of weights collide.
        digest.update(json.dumps([name, dtype, list(tensor.shape)]).encode() + b"\n")
        raw = tensor.view(-1).view(torch.uint8)
        if sys.byteorder == "big":
            raw = raw.view(-1, tensor.element_size()).flip(1).contiguous()
        digest.update(raw.numpy().data)
    return digest.hexdigest()


# ---------------------------------------------------------------- pretrained files


def load_pretrained(model: nn.Module, weights: str, data_dir: Path, *, download: bool = False) -> Provenance:
    """Set all but the classifier from a file, and say which file it was.

    The head keeps its fresh values, whatever the file holds. Counters of batch normalisation
    (``num_batches_tracked``), which nothing reads, stay at zero: files with and without them give one model.

    Parameters
    ----------
    weights : "none", "imagenet", or the path of a .safetensors or .pth file with the model's own keys
    data_dir : where "imagenet" looks: torchvision's file first, then any safetensors file of that shape
    download : whether "imagenet" may fetch torchvision's file into ``data_dir`` when neither is there
    """
    if weights == "none":
        return Provenance(file=None, sha256=None, kind="random", note=None)
    if weights != "imagenet":
        path = Path(weights).expanduser()
        if not path.is_file():
            raise DataError(f"no weights at {path}; give an existing file or --set model.weights=none")
        kind, note = "own file", None
    else:
        path = _imagenet_file(data_dir, download=download)
        kind, note = "torchvision", None
        if path.name == OTHER_FILE:
            kind = "imagenet, not the official file"
            note = f"{OTHER_FILE} is not torchvision's {OFFICIAL_FILE}; results may differ from those weights"

    # Read once: what is checked is what is loaded.
    content = path.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    if kind == "torchvision" and sha256 != OFFICIAL_SHA256:
        raise DataError(
            f"{path} is damaged or not torchvision's (sha256 {sha256[:8]}…, not {OFFICIAL_SHA256[:8]}…); "
            "fetch it again or remove it"
        )
    _set_all_but_head(model, _parse(content, path), path)
    return Provenance(file=path.name, sha256=sha256, kind=kind, note=note)


def _imagenet_file(data_dir: Path, *, download: bool) -> Path:
    if (found := imagenet_file(data_dir)) is not None:
        return found
    if download:
        import pooch

        try:
            fetched = pooch.retrieve(
                OFFICIAL_URL, known_hash=f"sha256:{OFFICIAL_SHA256}", fname=OFFICIAL_FILE, path=data_dir
            )
        except (OSError, ValueError) as error:  # no network, or not the published bytes
            raise DataError(f"could not download {OFFICIAL_URL} to {data_dir}: {error}") from error
        return Path(fetched)
    raise DataError(
        f"no ImageNet weights in {data_dir}: let --download fetch {OFFICIAL_FILE} (torchvision publishes it "
        f"at {OFFICIAL_URL}), put it or {OTHER_FILE} there, or start from random weights with --set model.weights=none"
    )


def _parse(content: bytes, path: Path) -> dict[str, Tensor]:
    """Return the file's tensors; neither format runs code from the file."""
    try:
        if path.suffix == ".safetensors":
            tensors = safetensors.torch.load(content)
        else:
            buffer = io.BytesIO(content)
            tensors = torch.load(buffer, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in any way its parser knows
        reason = str(error).strip().partition("\n")[0]
        raise DataError(f"{path} cannot be read as {path.suffix} weights: {reason}") from error
    if not isinstance(tensors, dict) or not all(isinstance(t, Tensor) for t in tensors.values()):
        raise DataError(f"{path} is not a plain state dict (names to tensors); save model.state_dict() itself")
    return tensors


def _set_all_but_head(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    def is_skipped(key: str) -> bool:
        return key.startswith(head_prefixes) or key.endswith("num_batches_tracked")

    head_prefixes = tuple(f"{name}." for name, module in model.named_modules() if module is model.head)
    own = model.state_dict()
    expected = {key: tensor for key, tensor in own.items() if not is_skipped(key)}
    taken: dict[str, Tensor] = {}
    for key, tensor in expected.items():
        if key not in tensors:
            raise DataError(f"{path} lacks {key!r}, which {type(model).__name__} has")
        given = tensors[key]
        if given.is_floating_point():
            given = given.to(tensor.dtype)  # half precision is exact in float32
        if key == "conv1.weight" and isinstance(model, ResNet18) and given.shape[1:2] == (3,) != tensor.shape[1:2]:
            given = grey_stem(given)
        if given.shape != tensor.shape or given.dtype != tensor.dtype:
            raise DataError(
                f"{path}: {key!r} is {tuple(tensors[key].shape)} {tensors[key].dtype}, "
                f"but {type(model).__name__} needs {tuple(tensor.shape)} {tensor.dtype}"
            )
        if not bool(given.isfinite().all()):
            raise DataError(f"{path}: {key!r} holds values that are not finite")
        taken[key] = given
    if unknown := [key for key in tensors if key not in expected and not is_skipped(key)]:
        raise DataError(f"{path} holds {unknown[0]!r}, which {type(model).__name__} does not have")
    with torch.no_grad():
        for key, given in taken.items():
            own[key].copy_(given)
