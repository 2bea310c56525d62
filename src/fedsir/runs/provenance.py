"""Where a result came from: versions, machine, weights."""

from __future__ import annotations

import hashlib
import os
import platform
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from fedsir import __version__

RECORDED = ("torch", "numpy", "scipy", "scikit-learn", "pydantic", "safetensors", "pillow")


def versions() -> dict[str, str]:
    """Return the versions of fedsir, Python and the libraries that can change a number."""
    return {
        "fedsir": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in RECORDED},
    }


@cache
def code_sha256() -> str:
    """Return a hash of the code that decides results: runs with another one may differ by more than their settings."""
    digest = hashlib.sha256()
    root = files("fedsir")
    for package in ("data", "engines", "evaluate", "methods", "models", "stages"):
        found = [path for path in (root / package).iterdir() if path.name.endswith(".py")]
        for path in sorted(found, key=lambda path: path.name):
            digest.update(f"{package}/{path.name}\n".encode() + path.read_bytes())
    digest.update((root / "randomness.py").read_bytes())
    return digest.hexdigest()


def processor() -> str:
    """Return the processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a device file, not a path of ours
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
        return names[0] if names else platform.machine()
    except OSError:
        return platform.processor() or platform.machine()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def provenance(*, weights: dict[str, Any], workers: int, device: str, engine: str = "local") -> dict[str, Any]:
    """Return provenance.json."""
    return {
        "versions": versions(),
        "code_sha256": code_sha256(),
        "platform": platform.platform(),
        "processor": processor(),
        "cores": cores(),
        "workers": workers,
        "device": device,
        "engine": engine,
        "initial_weights": weights,
        "written_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
