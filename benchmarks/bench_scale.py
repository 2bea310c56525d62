"""Whole runs with a thousand clients, and Stage I and a plan with ten thousand: time and the server's peak memory.

Slopes are of a line through the points on log-log axes: 1 is in proportion, 0 is not at all. Each measurement is a
process of its own (`scale_child`).
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.measure import Outcome
from fedsir.methods.replies import Weights
from fedsir.stages.train import nearest_clean_distances

N_CLIENTS, PER_CLIENT, ROUNDS = 1_000, 20, 5
SHARES = (0.02, 0.05, 0.1)
MODEL_SIZE = 39_000  # parameters of the small CNN, in tensors of 2,000


def run() -> Iterator[Outcome]:
    for method in ("fedavg", "fedsir"):
        yield from against_participants(method)
    yield against_clients("fedavg", (10, 100, 1_000, 10_000))
    yield against_clients("fedsir", (10, 100, 1_000))
    yield stage_one()
    yield plan()
    yield daagg()


def against_participants(method: str) -> Iterator[Outcome]:
    """Yield how seconds per round and memory grow with the participants among 1,000 clients."""
    found = {
        round(share * N_CLIENTS): child(
            "whole_run",
            method=method,
            n_clients=N_CLIENTS,
            per_client=PER_CLIENT,
            participation=share,
            rounds=ROUNDS,
        )
        for share in SHARES
    }
    where = f"{method}, small CNN, {N_CLIENTS:,} clients × {PER_CLIENT} images of 8×8, against participants"
    yield slope(f"scale_{method}_time", f"seconds per round: {where}", found, "seconds", "s", target=1.1)
    what = f"seconds of the server's processor per round: {where}"
    yield slope(f"scale_{method}_server", what, found, "server_seconds", "s", target=1.1)
    yield slope(f"scale_{method}_memory", f"server's peak memory: {where}", found, "peak_mb", "MB", target=0.1)


def against_clients(method: str, sizes: tuple[int, ...]) -> Outcome:
    """Return how the server's memory grows with the clients; ten of them take part in a round."""
    found = {
        n: child("whole_run", method=method, n_clients=n, per_client=10, participation=10 / n, rounds=2) for n in sizes
    }
    what = f"server's peak memory: {method}, small CNN, 10 images each, 10 participants, against clients"
    return slope(f"scale_{method}_clients", what, found, "peak_mb", "MB", target=0.1)


def stage_one() -> Outcome:
    sizes = {n: child("stage_one", n_clients=n, per_client=40, n_features=16, n_classes=5) for n in (1_000, 10_000)}
    largest = sizes[10_000]
    assert largest["is_right"], "these clients are easy to tell apart"
    details = {
        "all clients' halves": f"{largest['clients_seconds']:.3g} s",
        "peak memory, 1,000 and 10,000 clients": ", ".join(f"{found['peak_mb']:.0f} MB" for found in sizes.values()),
        "called right": "all",
    }
    what = "Stage I's split of 10,000 clients on synthetic features (40 samples, 16 features, 5 classes), against 1,000"
    return Outcome("scale_stage_one", what, largest["seconds"], sizes[1_000]["seconds"], "s", details=details)


def plan() -> Outcome:
    sizes = {n: child("plan", n_clients=n, per_client=5) for n in (1_000, 10_000)}
    details = {
        "peak memory, 1,000 and 10,000 clients": ", ".join(f"{found['peak_mb']:.0f} MB" for found in sizes.values()),
        "size of --json": f"{sizes[10_000]['json_mb']:.2g} MB",
    }
    what = "a plan for 10,000 clients of 5 images, against 1,000"
    return Outcome("scale_plan", what, sizes[10_000]["seconds"], sizes[1_000]["seconds"], "s", details=details)


class MadeWhenRead(Mapping[str, Weights]):
    """Models that come into being when they are read, as from disk; NumPy's memory, which Python can trace."""

    def __init__(self, n: int) -> None:
        self._names = [str(k) for k in range(n)]

    def __getitem__(self, name: str) -> Weights:
        values = np.random.default_rng(int(name)).standard_normal(MODEL_SIZE, dtype=np.float32)
        return {str(i): part for i, part in enumerate(torch.from_numpy(values).split(2_000))}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def daagg() -> Outcome:
    """Return how DaAgg's distances grow with the participants, three of ten of them clean: noisy × clean models."""
    torch.set_num_threads(1)
    found = {}
    for n in (20, 50, 100, 200):
        models, clean = MadeWhenRead(n), {str(k) for k in range(n) if k % 10 < 3}
        began = time.process_time()
        nearest_clean_distances(models, clean, "normalised")
        seconds = time.process_time() - began
        tracemalloc.start()
        nearest_clean_distances(models, clean, "normalised")
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
        found[n] = {"seconds": seconds, "peak_mb": peak}
    outcome = slope("scale_daagg", "DaAgg's nearest-clean distances against participants", found, "seconds", "s")
    details = outcome.details | {"memory": ", ".join(f"{point['peak_mb']:.2f} MB" for point in found.values())}
    return Outcome(outcome.name, outcome.what, outcome.ours, 1.0, outcome.unit, is_at_most=True, details=details)


def slope(
    name: str, what: str, found: dict[int, dict[str, Any]], field: str, unit: str, target: float | None = None
) -> Outcome:
    """Return the log-log slope of one field over the sizes it was measured at."""
    values = [point[field] for point in found.values()]
    fitted = float(np.polyfit(np.log(list(found)), np.log(values), 1)[0])
    points = {f"{size:,}": f"{value:.3g} {unit}" for size, value in zip(found, values, strict=True)}
    return Outcome(name, what, fitted, 1.0, "log-log slope", target=target, is_at_most=True, details=points)


def child(measure: str, **arguments: Any) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.scale_child", measure, json.dumps(arguments)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(answer)
    return found
