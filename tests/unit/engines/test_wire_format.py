"""What may travel, what may not, and what a refusal says."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fedsir.engines.wire import WireError, decode, encode


@dataclasses.dataclass
class Thing:
    x: int = 1


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": {"b": Thing()}}, "payload.a.b: a Thing cannot travel"),
        ({"a": [1, {2, 3}]}, r"payload.a\[1\]: a set cannot travel"),
        ({"a": b"bytes"}, "payload.a: a bytes cannot travel"),
        ({"a": 1j}, "payload.a: a complex cannot travel"),
        ({"f": len}, "payload.f: a builtin_function_or_method cannot travel"),
        ({"a": np.array([Thing()])}, "payload.a: a ndarray cannot travel"),
        ({"a": np.array(["text"])}, "payload.a: a ndarray cannot travel"),
        ({1: 2}, "payload: keys of a payload must be strings"),
        ({"a": {None: 2}}, "payload.a: keys of a payload must be strings"),
        ({"a": {"$tensor": "0"}}, "payload.a: keys of a payload must be strings"),
    ],
)
def test_what_cannot_travel_is_named_with_its_place(payload: Any, where: str) -> None:
    with pytest.raises(WireError, match=where):
        encode(payload)


def test_arrays_and_numpy_numbers_arrive_as_tensors_and_numbers() -> None:
    back = decode(
        encode(
            {
                "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
                "scalar": np.array(2.5),
                "empty": np.zeros((0, 3), np.float32),
                "number": np.float32(0.5),
                "flag": np.bool_(True),
                "pair": (1, 2),
            }
        )
    )
    assert back["fortran"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert back["scalar"].shape == ()
    assert back["scalar"].item() == 2.5
    assert back["empty"].shape == (0, 3)
    assert (back["number"], back["flag"], back["pair"]) == (0.5, True, [1, 2])
    assert type(back["flag"]) is bool


def test_parameters_travel_without_their_gradients() -> None:
    back = decode(encode({"w": torch.ones(2, requires_grad=True)}))
    assert not back["w"].requires_grad


def test_the_format_is_plain_safetensors() -> None:
    block = safetensors.torch.load(encode({"a": torch.tensor([1.5]), "b": [torch.tensor(3)]}))
    assert json.loads(block["tree"].numpy().tobytes()) == {"a": {"$tensor": "0"}, "b": [{"$tensor": "1"}]}
    assert block["0"].tolist() == [1.5]
    assert block["1"].item() == 3


def tree_block(text: str) -> bytes:
    return safetensors.torch.save({"tree": torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80\x04\x95",  # a pickle's first bytes
        bytes(100),
        safetensors.torch.save({"x": torch.zeros(1)}),  # no tree
        safetensors.torch.save({"tree": torch.zeros(3)}),
        safetensors.torch.save({"tree": torch.zeros(3, dtype=torch.bfloat16)}),
        tree_block("{"),
        tree_block('{"a": {"$tensor": "7"}}'),  # a tensor that is not there
        tree_block('{"a": {"$tensor": [1]}}'),
        tree_block("[" * 100_000 + "]" * 100_000),  # deeper than any stack
    ],
)
def test_rubbish_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(WireError, match="no fedsir payload"):
        decode(data)


def test_more_data_means_more_bytes() -> None:
    small, large = encode({"x": torch.zeros(10)}), encode({"x": torch.zeros(1010)})
    assert len(large) - len(small) == pytest.approx(4000, abs=16)
