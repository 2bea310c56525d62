"""What Flower costs: a FedAvg round of ten clients with ResNet-18, locally, in Flower's simulation, and on real sites.

Needs fedsir[flower]. `python -m benchmarks flower`; FEDSIR_BENCH_CLIENTS=3 FEDSIR_BENCH_IMAGES=64 tries it out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_round import one_of
from benchmarks.federation import opened, random_federation
from benchmarks.flower_sites import loading_seconds, measure_sites
from benchmarks.measure import Outcome, seconds_of
from fedsir.runs.provenance import cores

RUNS_ONLY_WHEN_NAMED = True  # ten sites are many processes
N_CLIENTS, PER_CLIENT = (int(os.environ.get(f"FEDSIR_BENCH_{k}", n)) for k, n in (("CLIENTS", 10), ("IMAGES", 256)))
REPEATS, NODES = 3, (10, 50, 100)
MODEL = "ResNet-18, FedAvg, one epoch"


def run() -> Iterator[Outcome]:
    data = random_federation(N_CLIENTS, PER_CLIENT)
    best: dict[str, float] = {}
    inside: dict[str, float] = {}  # seconds in client tasks, of the best round
    with (
        opened(data, method="fedavg", model="resnet18", workers=cores()) as local,
        opened(data, method="fedavg", model="resnet18", workers=cores(), engine_name="flower") as simulated,
    ):
        rounds = {"local": (local[1], one_of(local)), "simulation": (simulated[1], one_of(simulated))}

        def in_turns(repeats: int) -> None:
            for _ in range(repeats):
                for name, (fed, one_round) in rounds.items():
                    if (seconds := seconds_of(one_round)) < best.get(name, np.inf):
                        best[name], inside[name] = seconds, sum(fed.log.seconds.values())

        for _, one_round in rounds.values():
            one_round()
        in_turns(REPEATS)
        up, down = (sum(sizes.values()) for sizes in (local[1].log.bytes_up, local[1].log.bytes_down))
        with tempfile.TemporaryDirectory(prefix="fedsir-") as folder:
            sites = measure_sites(Path(folder), N_CLIENTS, PER_CLIENT, REPEATS)
        in_turns(1)  # before and after: the neighbours may have changed
    what = f"one round, {N_CLIENTS} clients × {PER_CLIENT} images, {MODEL}"
    yield Outcome(
        "flower_simulation",
        f"{what}: Flower's simulation against the local engine, {cores()} workers each",
        best["simulation"],
        best["local"],
        "s",
        is_at_most=True,
        details={
            name: {
                "seconds in client tasks": round(inside[name], 2),
                "seconds a worker is not in one": round(best[name] - inside[name] / cores(), 2),
            }
            for name in rounds
        },
    )
    loading = min(loading_seconds() for _ in range(REPEATS))
    yield Outcome(
        "flower_deployment",
        f"{what}: {N_CLIENTS} real sites on this machine with TLS and keys, against the local engine",
        min(sites.seconds),
        best["local"],
        "s",
        is_at_most=True,
        details={
            "all rounds, s": [round(seconds, 1) for seconds in sites.seconds],
            "processor seconds of the fastest": sites.processor,
            f"of these in loading, {N_CLIENTS} processes": round(N_CLIENTS * loading, 1),
            "of these in client tasks, as the local engine has them": round(inside["local"], 1),
        },
    )
    yield Outcome(
        "flower_bytes",
        f"bytes of one round as Flower's SuperLink counts them against fedsir's own count, {N_CLIENTS} sites, {MODEL}",
        sites.network_bytes / 1e6,
        (up + down) / 1e6,
        "MB",
        is_at_most=True,
        details={"counted up": up, "counted down": down},
    )
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
