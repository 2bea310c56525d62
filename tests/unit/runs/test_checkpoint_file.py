"""Checkpoints: everything comes back to the bit, and only into the run it came from."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedsir.engines.wire import decode, encode
from fedsir.errors import RunFolderError
from fedsir.methods.base import ServerState
from fedsir.methods.fedsir import FedSIRState
from fedsir.methods.reply_check import Form
from fedsir.runs.checkpoint import from_bytes, to_bytes
from fedsir.simulation.simulation import Snapshot
from fedsir.stages.split import OffDiagonal, split_clients

MODEL = {"w": torch.tensor([[1.0, -0.0], [1e-45, 3.0]]), "n": torch.tensor(7)}
FORM = Form.of(MODEL, classes=3, features=2)
SIZES = dict.fromkeys("abüde", 3)
MINE = "f" * 64


def snapshot() -> Snapshot:
    told = {k: OffDiagonal(mean, mean**2, 3) for k, mean in (("a", 0.1), ("b", 0.12), ("ü", 0.8), ("d", 0.82))}
    split = split_clients(told, missing={"e": "dropped out"})
    state = FedSIRState(model=MODEL, split=split, clean_reference={"w": MODEL["w"] * 2, "n": MODEL["n"]})
    client_states = {"a": encode({}), "ü": encode({"corrected_labels": torch.tensor([1, 2, 0])})}
    return Snapshot(4, state, client_states, 12.5)


def read(content: bytes, state_type: type[ServerState] = FedSIRState) -> Snapshot:
    return from_bytes(content, state_type, FORM, SIZES, MINE)


def test_a_checkpoint_comes_back_to_the_bit() -> None:
    before = snapshot()
    after = read(to_bytes(before, MINE))
    assert (after.round, after.seconds, after.client_states) == (4, 12.5, before.client_states)
    assert isinstance(after.state, FedSIRState)
    assert after.state.split == before.state.split
    for name, tensor in MODEL.items():
        assert after.state.model[name].numpy().tobytes() == tensor.numpy().tobytes()
        assert after.state.model[name].dtype == tensor.dtype
    assert to_bytes(after, MINE) == to_bytes(before, MINE)


def test_a_checkpoint_of_another_run_or_format_or_method_is_refused() -> None:
    with pytest.raises(RunFolderError, match="belongs to another run"):
        read(to_bytes(snapshot(), "0" * 64))
    with pytest.raises(RunFolderError, match="another version of fedsir"):
        read(encode(decode(to_bytes(snapshot(), MINE)) | {"format": 99}))
    with pytest.raises(RunFolderError, match="is damaged"):
        read(to_bytes(snapshot(), MINE), ServerState)


def client(**state: Any) -> dict[str, Any]:
    """Return the part of a checkpoint that holds clients, with one whose state is this."""
    return decode(to_bytes(dataclasses.replace(snapshot(), client_states={"a": encode(state)}), MINE))["clients"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "damage",
    [
        lambda tree: [tree],
        lambda tree: {},
        lambda tree: {"format": tree["format"], "config_sha256": MINE},
        lambda tree: tree | {"round": 1.0},
        lambda tree: tree | {"round": True},
        lambda tree: tree | {"round": -1},
        lambda tree: tree | {"seconds": "1"},
        lambda tree: tree | {"seconds": float("nan")},
        lambda tree: tree | {"state": 3},
        lambda tree: tree | {"state": tree["state"] | {"model": {"w": MODEL["w"]}}},
        lambda tree: tree | {"state": tree["state"] | {"model": {**MODEL, "w": MODEL["w"].double()}}},
        lambda tree: tree | {"state": tree["state"] | {"model": {**MODEL, "w": MODEL["w"] / 0}}},
        lambda tree: tree | {"state": tree["state"] | {"split": {}}},
        lambda tree: tree | {"state": tree["state"] | {"split": tree["state"]["split"] | {"noisy": "ü"}}},
        lambda tree: tree | {"state": tree["state"] | {"split": tree["state"]["split"] | {"noisy": ["zz"]}}},
        lambda tree: tree | {"state": tree["state"] | {"split": tree["state"]["split"] | {"has_two_groups": 1}}},
        lambda tree: tree | {"state": tree["state"] | {"split": tree["state"]["split"] | {"evidence": {"p": 1}}}},
        lambda tree: tree | {"clients": {"a": "text"}},
        lambda tree: tree | {"clients": tree["clients"] | {"names": ["a"]}},
        lambda tree: tree | {"clients": tree["clients"] | {"names": ["a", "zz"]}},
        lambda tree: tree | {"clients": tree["clients"] | {"sizes": torch.tensor([0.5, 1.5])}},
        lambda tree: tree | {"clients": client(corrected_labels=torch.tensor([1, 2]))},
        lambda tree: tree | {"clients": client(corrected_labels=torch.tensor([1, 2, 3]))},
        lambda tree: tree | {"clients": client(corrected_labels=torch.tensor([1.0, 2.0, 0.0]))},
        lambda tree: tree | {"clients": client(corrected_labels="120")},
        lambda tree: tree | {"clients": client(model={"w": MODEL["w"]})},
    ],
)
def test_a_whole_file_with_wrong_content_is_damaged(damage: Callable[[Any], Any]) -> None:
    content = encode(damage(decode(to_bytes(snapshot(), MINE))))
    with pytest.raises(RunFolderError, match=r"the checkpoint is damaged: .*restore the file"):
        read(content)


@pytest.mark.parametrize("content", [b"", b"no tensors", encode(3)])
def test_bytes_that_are_no_checkpoint_are_refused(content: bytes) -> None:
    with pytest.raises(RunFolderError, match="is damaged"):
        read(content)


def test_every_field_of_a_state_is_saved() -> None:
    assert set(snapshot().state.to_tree()) == {field.name for field in dataclasses.fields(FedSIRState)}


def test_no_client_need_have_a_state() -> None:
    assert read(to_bytes(dataclasses.replace(snapshot(), client_states={}), MINE)).client_states == {}


def test_ten_thousand_small_states_take_little_more_than_themselves() -> None:
    small = dataclasses.replace(snapshot(), client_states={})
    many = dataclasses.replace(small, client_states={str(k): b"12345678" for k in range(10_000)})
    extra = len(to_bytes(many, MINE)) - len(to_bytes(small, MINE))
    assert extra < 10_000 * 8 + 10_000 * 16  # the states, a name and a size each
