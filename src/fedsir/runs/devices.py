"""Which devices this machine can compute on."""

from __future__ import annotations

import torch

from fedsir.errors import ConfigError


def available_devices() -> list[str]:
    """Return the names that --device takes here, "cuda" standing for the first of "cuda:0", "cuda:1", …"""
    n_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ["cuda", *(f"cuda:{i}" for i in range(n_cuda))] if n_cuda else []
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def check_machine(workers: int, device: str) -> None:
    """Refuse what nobody can compute with: no worker, or a device that is not here."""
    if type(workers) is not int or workers < 1:
        raise ConfigError(f"workers: must be a whole number of at least 1 (given: {workers!r})")
    check_device(device)


def check_device(name: str) -> None:
    """Refuse a device that is not here before anything is written or computed."""
    if name not in (known := available_devices()):
        raise ConfigError(f"device: there is no {name!r} on this machine; use {' or '.join(known)}.{_reason(name)}")


def _reason(name: str) -> str:
    """Return why an accelerator is missing, where that can be told, as a sentence to append."""
    kind = name.partition(":")[0]
    if kind == "mps":
        return " MPS needs a Mac with Apple silicon and PyTorch's build for it."
    if kind != "cuda" or torch.cuda.is_available():  # in the second case the message lists those that are there
        return ""
    if torch.version.cuda is None and torch.version.hip is None:
        return " This PyTorch is built without CUDA: install a build that has it (pytorch.org)."
    return " PyTorch finds no CUDA device: is the driver installed, and is the device visible to this process?"
