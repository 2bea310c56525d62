"""What Flower costs: a FedAvg round of ten clients with ResNet-18, locally, in Flower's simulation, and on real sites.

Needs fedsir[flower]. `python -m benchmarks flower`; FEDSIR_BENCH_CLIENTS=3 FEDSIR_BENCH_IMAGES=64 tries it out.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.bench_round import one_of
from benchmarks.federation import opened, random_federation
from benchmarks.flower_sites import OTHERS, loading_seconds, measure_sites
from benchmarks.measure import Outcome, seconds_of
from benchmarks.processor import of_this_tree
from fedsir.runs.provenance import cores

RUNS_ONLY_WHEN_NAMED = True  # ten sites are many processes
N_CLIENTS, PER_CLIENT = (int(os.environ.get(f"FEDSIR_BENCH_{k}", n)) for k, n in (("CLIENTS", 10), ("IMAGES", 256)))
REPEATS = 3
MODEL = "ResNet-18, FedAvg, one epoch"


def run() -> Iterator[Outcome]:
    data = random_federation(N_CLIENTS, PER_CLIENT)
    best: dict[str, float] = {}
    spent: dict[str, list[float]] = {"local": [], "simulation": []}  # processor seconds
    with (
        opened(data, method="fedavg", model="resnet18", workers=cores()) as local,
        opened(data, method="fedavg", model="resnet18", workers=cores(), engine_name="flower") as simulated,
    ):
        rounds = {"local": one_of(local), "simulation": one_of(simulated)}

        def in_turns(repeats: int) -> None:
            for _ in range(repeats):
                for name, one_round in rounds.items():
                    before = of_this_tree(with_ray=name == "simulation")
                    best[name] = min(best.get(name, math.inf), seconds_of(one_round))
                    spent[name].append(of_this_tree(with_ray=name == "simulation") - before)

        for one_round in rounds.values():
            one_round()
        in_turns(REPEATS)
        up, down = (sum(sizes.values()) for sizes in (local[1].log.bytes_up, local[1].log.bytes_down))
        with tempfile.TemporaryDirectory(prefix="fedsir-") as folder:
            sites = measure_sites(Path(folder), N_CLIENTS, PER_CLIENT, REPEATS)
        in_turns(1)  # before and after: the neighbours may have changed
    processor = {name: round(min(seconds), 1) for name, seconds in spent.items()}
    of_sites = sum(seconds for kind, seconds in sites.processor.items() if kind != OTHERS)
    what = f"one round, {N_CLIENTS} clients × {PER_CLIENT} images, {MODEL}"
    yield Outcome(
        "flower_simulation",
        f"{what}: Flower's simulation against the local engine, {cores()} workers each",
        best["simulation"],
        best["local"],
        "s",
        is_at_most=True,
        details={
            "processor seconds": processor,
            "ratio of processor seconds": ratio(processor["simulation"], processor["local"]),
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
            "ratio of processor seconds": ratio(of_sites, processor["local"]),
            f"of these in loading, {N_CLIENTS} processes": round(N_CLIENTS * loading, 1),
            "of these as the local engine has them": processor["local"],
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


def ratio(ours: float, reference: float) -> float | None:
    """Return how many times the processor seconds of the reference these are; None where they cannot be read."""
    return round(ours / reference, 2) if reference else None
