"""What crosses the wire: a payload tree as bytes, and back. The length of the bytes is what gets counted.

One safetensors block: the tensors under numbered names, and the tree's shape as JSON with the numbers at the tensors'
places. The same bytes go to worker processes, into checkpoints and over a network; nothing is ever unpickled.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from fedsir.errors import FedsirError

_SHAPE = "tree"
_TENSOR = "$tensor"


class WireError(FedsirError):
    """Bytes that are no payload, or a payload that cannot travel."""


def encode(payload: Any) -> bytes:
    """Return a payload tree (dicts with string keys, lists, tensors, JSON values) as bytes."""
    tensors: dict[str, Tensor] = {}
    shape = json.dumps(_flatten(payload, tensors, "payload"), separators=(",", ":")).encode()
    tensors[_SHAPE] = torch.frombuffer(bytearray(shape), dtype=torch.uint8)
    return safetensors.torch.save(tensors)


def decode(data: bytes) -> Any:
    """Return the payload tree that `encode` turned into bytes; tuples come back as lists, arrays as tensors."""
    try:
        tensors = safetensors.torch.load(data)
        shape = json.loads(tensors.pop(_SHAPE).numpy().tobytes())
        return _restore(shape, tensors)
    except (safetensors.SafetensorError, KeyError, ValueError, TypeError, RecursionError) as problem:
        raise WireError(f"These bytes are no fedsir payload: {problem}.") from problem


def _flatten(node: Any, tensors: dict[str, Tensor], where: str) -> Any:
    if isinstance(node, np.ndarray) and node.dtype.kind in "biufc":  # booleans and numbers, no objects or strings
        node = torch.from_numpy(np.asarray(node, order="C"))  # ascontiguousarray would make 0-d arrays 1-d
    if isinstance(node, Tensor):
        name = str(len(tensors))
        # clone() where the storage is shared: safetensors refuses tensors that overlap.
        tensors[name] = node.detach().cpu().contiguous().clone()
        return {_TENSOR: name}
    if isinstance(node, dict):
        if not all(isinstance(key, str) and key != _TENSOR for key in node):
            raise WireError(f"{where}: keys of a payload must be strings (and not {_TENSOR!r}).")
        return {key: _flatten(child, tensors, f"{where}.{key}") for key, child in node.items()}
    if isinstance(node, list | tuple):
        return [_flatten(child, tensors, f"{where}[{i}]") for i, child in enumerate(node)]
    if isinstance(node, np.generic):
        return node.item()
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise WireError(f"{where}: a {type(node).__name__} cannot travel; use tensors, numbers, strings, lists, dicts.")


def _restore(node: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(node, dict):
        if node.keys() == {_TENSOR}:
            return tensors[node[_TENSOR]]
        return {key: _restore(child, tensors) for key, child in node.items()}
    if isinstance(node, list):
        return [_restore(child, tensors) for child in node]
    return node
