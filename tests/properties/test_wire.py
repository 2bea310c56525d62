"""Whatever may travel comes back as it was; whatever is rubbish is refused by name."""

import math
from typing import Any

import safetensors.torch
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedsir.engines.wire import WireError, decode, encode

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.bool,
]


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    """Return a tensor of any travelling type: 0-d, empty, transposed or sliced too."""
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    seed = draw(st.integers(0, 1000))
    values = torch.randint(-100, 100, shape, generator=torch.Generator().manual_seed(seed))
    tensor = values.to(draw(st.sampled_from(DTYPES)))
    if tensor.ndim >= 2 and draw(st.booleans()):
        tensor = tensor.transpose(0, 1)
    if tensor.ndim >= 1 and draw(st.booleans()):
        tensor = tensor[::2]
    return tensor


NUMBERS = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False)
KEYS = st.text(max_size=6).filter(lambda key: key != "$tensor")
TREES = st.recursive(
    NUMBERS | st.text(max_size=8) | tensors(),
    lambda child: st.lists(child, max_size=4) | st.dictionaries(KEYS, child, max_size=4),
    max_leaves=12,
)
PAYLOADS = st.dictionaries(KEYS, TREES, max_size=4)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two trees are alike: same structure, types, tensor types, shapes and values."""
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.dtype == other.dtype
            and one.shape == other.shape
            and bool((one == other).all())
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict) and list(one) == list(other) and all(is_same(one[key], other[key]) for key in one)
        )
    if isinstance(one, list):
        return (
            isinstance(other, list)
            and len(one) == len(other)
            and all(is_same(a, b) for a, b in zip(one, other, strict=True))
        )
    return type(one) is type(other) and one == other


@given(payload=PAYLOADS)
def test_what_travels_comes_back(payload: dict[str, Any]) -> None:
    data = encode(payload)
    assert is_same(payload, decode(data))
    assert data == encode(payload)  # the same tree has the same bytes
    assert data == encode(decode(data))


@given(a=st.lists(st.floats(), max_size=5))
def test_numbers_that_are_not_finite_travel(a: list[float]) -> None:
    back = decode(encode({"a": a}))["a"]
    assert all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, back, strict=True))


@given(payload=PAYLOADS)
def test_tensors_arrive_as_copies(payload: dict[str, Any]) -> None:
    tensor = torch.zeros(3)
    back = decode(encode({"payload": payload, "x": tensor, "same": tensor, "part": tensor[:2]}))
    back["x"] += 1
    assert tensor.tolist() == [0, 0, 0]
    assert back["same"].tolist() == [0, 0, 0]
    assert back["part"].tolist() == [0, 0]


def outcome(data: bytes) -> str:
    """Return whether bytes are read or refused by name; anything else that is raised fails the test."""
    try:
        decode(data)
    except WireError as problem:
        return "refused" if str(problem).startswith("These bytes are no fedsir payload") else str(problem)
    return "read"


@given(data=st.binary(max_size=200))
def test_rubbish_is_refused(data: bytes) -> None:
    assert outcome(data) == "refused"


@given(payload=PAYLOADS, where=st.integers(0, 10_000))
def test_bytes_that_were_cut_short_are_refused(payload: dict[str, Any], where: int) -> None:
    data = encode(payload)
    assert outcome(data[: where % len(data)]) == "refused"


@given(payload=PAYLOADS, where=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_one_wrong_byte_is_read_or_refused(payload: dict[str, Any], where: int, byte: int) -> None:
    data = bytearray(encode(payload))
    data[where % len(data)] = byte
    assert outcome(bytes(data)) in ("read", "refused")


@given(text=st.text(min_size=1, max_size=40))
def test_any_text_in_place_of_the_tree_is_read_or_refused(text: str) -> None:
    tree = torch.frombuffer(bytearray(text.encode("utf-8", "surrogatepass")), dtype=torch.uint8)
    assert outcome(safetensors.torch.save({"tree": tree})) in ("read", "refused")
