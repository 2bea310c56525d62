"""Which devices there are, and what is said of one that is not."""

import pytest
import torch

from fedsir.errors import ConfigError
from fedsir.runs.devices import available_devices, check_device


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine whose PyTorch has CUDA but finds no device."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    return monkeypatch


def test_the_cpu_is_always_there(machine: pytest.MonkeyPatch) -> None:
    assert available_devices() == ["cpu"]
    check_device("cpu")


def test_accelerators_are_listed_by_the_names_that_are_taken(machine: pytest.MonkeyPatch) -> None:
    machine.setattr(torch.cuda, "is_available", lambda: True)
    machine.setattr(torch.cuda, "device_count", lambda: 2)
    machine.setattr(torch.backends.mps, "is_available", lambda: True)
    assert available_devices() == ["cpu", "cuda", "cuda:0", "cuda:1", "mps"]
    for name in available_devices():
        check_device(name)
    with pytest.raises(
        ConfigError, match=r"no 'cuda:2' on this machine; use cpu or cuda or cuda:0 or cuda:1 or mps\.$"
    ):
        check_device("cuda:2")


@pytest.mark.parametrize(
    ("name", "version", "reason"),
    [
        ("cuda", "13.0", r" PyTorch finds no CUDA device: is the driver installed, .*\?"),
        ("cuda", None, r" This PyTorch is built without CUDA: install a build that has it \(pytorch.org\)\."),
        ("cuda:1", None, r" This PyTorch is built without CUDA: .*"),
        ("mps", "13.0", r" MPS needs a Mac with Apple silicon and PyTorch's build for it\."),
        ("gpu", "13.0", ""),
    ],
)
def test_one_line_says_what_is_missing_and_why(
    name: str, version: str | None, reason: str, machine: pytest.MonkeyPatch
) -> None:
    machine.setattr(torch.version, "cuda", version)
    machine.setattr(torch.version, "hip", None)
    with pytest.raises(ConfigError, match=rf"^device: there is no '{name}' on this machine; use cpu\.{reason}$"):
        check_device(name)
