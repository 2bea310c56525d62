"""How much memory the server takes with more and more virtual nodes, in Flower's simulation and locally.

Needs fedsir[flower]. `python -m benchmarks flower_memory`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks.bench_flower import MODEL
from benchmarks.measure import Outcome

RUNS_ONLY_WHEN_NAMED = True  # many minutes
NODES = (10, 50, 100)


def run() -> Iterator[Outcome]:
    yield memory()


def memory() -> Outcome:
    """Return how the memory of the process that is the server grows with virtual nodes, all of which take part."""
    found = {name: {n: child(name, n) for n in NODES} for name in ("flower", "local")}
    details = {
        f"{name}, {n} nodes": f"{point['peak_mb']:.0f} MB, {point['seconds']:.1f} s a round"
        for name, points in found.items()
        for n, point in points.items()
    }
    largest = NODES[-1]
    return Outcome(
        "flower_memory",
        f"server's peak memory with {largest} virtual nodes of 4 images, {MODEL}: Flower's simulation against local",
        found["flower"][largest]["peak_mb"],
        found["local"][largest]["peak_mb"],
        "MB",
        is_at_most=True,
        details=details,
    )


def child(engine: str, n: int) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.flower_child", engine, str(n)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return found
