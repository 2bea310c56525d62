"""Checkpoints: everything comes back to the bit, and only into the run it came from."""

import dataclasses

import pytest
import torch

from fedsir.engines.wire import decode, encode
from fedsir.errors import RunFolderError
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.fedsir import FedSIR, FedSIRState
from fedsir.runs.checkpoint import FORMAT, Checkpoint
from fedsir.stages.split import OffDiagonal, split_clients

MODEL = {"w": torch.tensor([[1.0, -0.0], [1e-45, 3.0]]), "n": torch.tensor(7)}


def checkpoint() -> Checkpoint:
    told = {k: OffDiagonal(mean, mean**2, 3) for k, mean in (("a", 0.1), ("b", 0.12), ("ü", 0.8), ("d", 0.82))}
    split = split_clients(told, missing={"e": "dropped out"})
    state = FedSIRState(model=MODEL, split=split, clean_reference={"w": MODEL["w"] * 2, "n": MODEL["n"]})
    client_states = {"a": encode({}), "ü": encode({"corrected_labels": torch.tensor([1, 2, 0])})}
    return Checkpoint(4, state, client_states, 12.5, "f" * 64)


def test_a_checkpoint_comes_back_to_the_bit() -> None:
    before = checkpoint()
    after = Checkpoint.from_bytes(before.to_bytes(), FedSIR, "f" * 64)
    assert (after.round, after.seconds, after.client_states) == (4, 12.5, before.client_states)
    assert isinstance(after.state, FedSIRState)
    assert after.state.split == before.state.split
    for name, tensor in MODEL.items():
        assert after.state.model[name].numpy().tobytes() == tensor.numpy().tobytes()
        assert after.state.model[name].dtype == tensor.dtype
    assert after.to_bytes() == before.to_bytes()


def test_a_checkpoint_of_another_run_is_refused() -> None:
    with pytest.raises(RunFolderError, match="belongs to another run"):
        Checkpoint.from_bytes(checkpoint().to_bytes(), FedSIR, "0" * 64)


def test_a_checkpoint_of_another_format_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsir.runs.checkpoint.FORMAT", 99)
    content = checkpoint().to_bytes()
    monkeypatch.undo()
    with pytest.raises(RunFolderError, match="another version of fedsir"):
        Checkpoint.from_bytes(content, FedSIR, "f" * 64)


@pytest.mark.parametrize(
    "content", [b"", b"no tensors", encode({}), encode([1]), encode({"format": FORMAT}), encode(3)]
)
def test_bytes_that_are_no_checkpoint_are_refused(content: bytes) -> None:
    with pytest.raises(RunFolderError, match="cannot be read"):
        Checkpoint.from_bytes(content, FedSIR, "f" * 64)


def test_a_state_of_another_method_is_refused() -> None:
    with pytest.raises(RunFolderError, match="cannot be read"):
        Checkpoint.from_bytes(checkpoint().to_bytes(), FedAvg, "f" * 64)


def test_client_states_that_are_no_tensors_are_refused() -> None:
    tree = {
        "format": FORMAT,
        "round": 1,
        "state": checkpoint().state.to_tree(),
        "clients": {"a": "text"},
        "seconds": 1.0,
        "config_sha256": "f" * 64,
    }
    with pytest.raises(RunFolderError, match="cannot be read"):
        Checkpoint.from_bytes(encode(tree), FedSIR, "f" * 64)


def test_every_field_of_a_state_is_saved() -> None:
    tree = checkpoint().state.to_tree()
    assert set(tree) == {field.name for field in dataclasses.fields(FedSIRState)}


def test_no_client_need_have_a_state() -> None:
    before = dataclasses.replace(checkpoint(), client_states={})
    assert Checkpoint.from_bytes(before.to_bytes(), FedSIR, "f" * 64).client_states == {}


def test_ten_thousand_small_states_take_little_more_than_themselves() -> None:
    small, many = dataclasses.replace(checkpoint(), client_states={}), {str(k): b"12345678" for k in range(10_000)}
    extra = len(dataclasses.replace(small, client_states=many).to_bytes()) - len(small.to_bytes())
    assert extra < 10_000 * 8 + 10_000 * 16  # the states, a name and a size each
    read = Checkpoint.from_bytes(dataclasses.replace(small, client_states=many).to_bytes(), FedSIR, "f" * 64)
    assert read.client_states == many


def test_client_states_without_a_name_are_refused() -> None:
    tree = decode(checkpoint().to_bytes())
    tree["clients"]["names"].pop()
    with pytest.raises(RunFolderError, match="cannot be read"):
        Checkpoint.from_bytes(encode(tree), FedSIR, "f" * 64)
