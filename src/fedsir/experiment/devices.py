"""Which devices this machine can compute on."""

from __future__ import annotations

import torch

from fedsir.errors import ConfigError


def available_devices() -> list[str]:
    """Return the names that --device takes here, "cuda" standing for the first of "cuda:0", "cuda:1", …"""
    n_cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    cuda = ["cuda", *(f"cuda:{i}" for i in range(n_cuda))] if n_cuda else []
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def check_device(name: str) -> None:
    """Refuse a device that is not here before anything is written or computed."""
    if name not in (known := available_devices()):
        raise ConfigError(f"device: there is no {name!r} on this machine; use {' or '.join(known)}.")
