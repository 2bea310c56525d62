"""One measurement of `bench_scale` in a process of its own, so that its peak of memory is its own.

`python -m benchmarks.scale_child NAME '{"n_clients": 1000, …}'` prints the numbers as JSON. Peaks are of the process
that is the server; clients train in worker processes beside it. Where one process does all the work, the time for
which it has the processor is taken, which neighbours disturb least.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import peak
from fedsir.runs.config import RunConfig
from fedsir.runs.estimate import plan_run
from fedsir.runs.progress import Silent
from fedsir.runs.provenance import cores
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, run_experiment
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.spectrum import class_features
from fedsir.stages.split import OffDiagonal, split_clients

N_CLASSES, N_TEST = 10, 500
NOISY_SHARE = 0.7


class Clock(Silent):
    """Notes when each round is done, its line and its checkpoint written, and this process's own work till then."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.cpu_times: list[float] = []

    def round_done(self, metrics: dict[str, Any]) -> None:
        del metrics
        self.times.append(time.perf_counter())
        self.cpu_times.append(time.process_time())


def whole_run(method: str, n_clients: int, per_client: int, participation: float, rounds: int) -> dict[str, Any]:
    """Run an experiment with the small CNN; return seconds per round after the start."""
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = settings(Path(folder), method, n_clients, per_client, participation, rounds)
        run_experiment(config, RunTarget(Path(folder) / "run", workers=max(2, cores()), progress=clock))
        n_bytes = sum(path.stat().st_size for path in (Path(folder) / "run").iterdir())
    # Round 1 pays for what workers load on their first call; the best of the others is the least disturbed.
    return {
        "seconds": float(np.diff(clock.times[1:]).min()),
        "server_seconds": float(np.diff(clock.cpu_times[1:]).min()),
        "run_folder_mb": n_bytes / 1e6,
    }


def plan(n_clients: int, per_client: int) -> dict[str, Any]:
    """Plan a run, as `fedsir plan` does."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(Path(folder), "fedsir", n_clients, per_client, 0.1, 10)
        began = time.process_time()
        planned = plan_run(config, workers=1)
        seconds = time.process_time() - began
    return {"seconds": seconds, "json_mb": len(json.dumps(planned)) / 1e6}


def stage_one(n_clients: int, per_client: int, n_features: int, n_classes: int) -> dict[str, Any]:
    """Identify noisy clients from synthetic features, client by client; return seconds and whether all were right."""
    split_clients({str(k): OffDiagonal(0.1 * k, 0.1 * k, 2) for k in range(4)})  # loads scikit-learn
    random = np.random.default_rng(0)
    centres = np.eye(n_classes, n_features) + 0.3 * random.random((n_classes, n_features))
    true = np.arange(per_client) % n_classes
    n_noisy = round(NOISY_SHARE * n_clients)
    told: dict[str, OffDiagonal] = {}
    seconds = 0.0
    for k in range(n_clients):
        features = (centres[true] + 0.15 * random.standard_normal((per_client, n_features))).clip(min=0)
        shift = random.integers(1, n_classes, per_client)
        is_wrong = (random.random(per_client) < 0.6) & (k < n_noisy)
        given = np.where(is_wrong, (true + shift) % n_classes, true)
        began = time.process_time()
        directions = class_directions(class_features(features, given, n_classes))
        told[str(k)] = off_diagonal_stats(class_similarity(directions))
        seconds += time.process_time() - began
    began = time.process_time()
    split = split_clients(told)
    split_seconds = time.process_time() - began
    is_right = split.noisy == tuple(str(k) for k in range(n_noisy))
    return {"clients_seconds": seconds, "seconds": split_seconds, "is_right": is_right}


def settings(
    folder: Path, method: str, n_clients: int, per_client: int, participation: float, rounds: int
) -> RunConfig:
    """Write 8×8 images of ten classes that can be told apart; return the settings of a run on them."""
    random = np.random.default_rng(0)
    n = n_clients * per_client + N_TEST
    labels = np.arange(n) % N_CLASSES
    centres = random.integers(40, 216, (N_CLASSES, 8, 8))
    images = np.clip(centres[labels] + random.normal(0, 40, (n, 8, 8)), 0, 255).astype(np.uint8)
    split = np.where(np.arange(n) < N_TEST, "test", "train")
    np.savez(folder / "data.npz", images=images, labels=labels, split=split)
    tree: dict[str, Any] = {
        "rounds": rounds,
        "participation": participation,
        "data": {
            "dataset": str(folder / "data.npz"),
            "n_clients": n_clients,
            "partition": "iid",
            "noise_rate": 0.6,
            "noisy_clients": max(1, round(NOISY_SHARE * n_clients)),
        },
        "model": {"name": "small_cnn"},
        "method": {"name": method, "batch_size": 32, "epochs": 1},  # whatever the recipe says: old results compare
    }
    if method == "fedsir":
        relabel = {"every": 1, "min_samples": 1, "rule": "agreement"}
        tree["method"] |= {"identify": {"epochs": 1, "min_class_samples": 1}, "relabel": relabel}
    return resolve("digits", tree)


MEASURES: dict[str, Callable[..., dict[str, Any]]] = {"whole_run": whole_run, "plan": plan, "stage_one": stage_one}


def main() -> None:
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    found = MEASURES[name](**arguments)
    print(json.dumps(found | {"peak_mb": peak() / 1e6}))


if __name__ == "__main__":  # also what keeps worker processes from starting the measurement again
    main()
