"""What Flower costs: a FedAvg round of ten clients with ResNet-18, locally, in Flower's simulation, and on real sites.

Needs fedsir[flower]. `python -m benchmarks flower`; FEDSIR_BENCH_CLIENTS=3 FEDSIR_BENCH_IMAGES=64 tries it out.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_round import one_of
from benchmarks.federation import opened, random_federation
from benchmarks.measure import Outcome, seconds_of
from fedsir.runs.provenance import cores

RUNS_ONLY_WHEN_NAMED = True  # ten sites are many processes
N_CLIENTS, PER_CLIENT = (int(os.environ.get(f"FEDSIR_BENCH_{k}", n)) for k, n in (("CLIENTS", 10), ("IMAGES", 256)))
REPEATS, NODES = 3, (10, 50, 100)
MODEL = "ResNet-18, FedAvg, one epoch"
EXAMPLES = Path(__file__).parents[1] / "examples"


def run() -> Iterator[Outcome]:
    data = random_federation(N_CLIENTS, PER_CLIENT)
    best: dict[str, float] = {}
    inside: dict[str, float] = {}  # seconds in client tasks, of the best round
    with (
        opened(data, method="fedavg", model="resnet18", workers=cores()) as local,
        opened(data, method="fedavg", model="resnet18", workers=cores(), engine_name="flower") as simulated,
    ):
        rounds = {"local": (local[1], one_of(local)), "simulation": (simulated[1], one_of(simulated))}
        for _, one_round in rounds.values():
            one_round()
        for _ in range(REPEATS):
            for name, (fed, one_round) in rounds.items():
                if (seconds := seconds_of(one_round)) < best.get(name, np.inf):
                    best[name], inside[name] = seconds, sum(fed.log.seconds.values())
        up, down = (sum(sizes.values()) for sizes in (local[1].log.bytes_up, local[1].log.bytes_down))
        with tempfile.TemporaryDirectory(prefix="fedsir-") as folder:
            sites = real_sites(Path(folder))
        for name, (_, one_round) in rounds.items():  # before and after: the neighbours may have changed
            best[name] = min(best[name], seconds_of(one_round))
    what = f"one round, {N_CLIENTS} clients × {PER_CLIENT} images, {MODEL}"
    yield Outcome(
        "flower_simulation",
        f"{what}: Flower's simulation against the local engine, {cores()} workers each",
        best["simulation"],
        best["local"],
        "s",
        is_at_most=True,
        details={f"seconds in client tasks, {name}": round(seconds, 2) for name, seconds in inside.items()}
        | {"where the rest goes": "Ray hands over messages, Flower looks for them ten times a second"},
    )
    yield Outcome(
        "flower_deployment",
        f"{what}: {N_CLIENTS} real sites on this machine with TLS and keys, against the local engine",
        sites["seconds"],
        best["local"],
        "s",
        is_at_most=True,
        details={
            "seconds a site's process takes to load, alone": round(sites["loading"], 2),
            "processes a round": N_CLIENTS,
            "all rounds": [round(seconds, 1) for seconds in sites["all"]],
        },
    )
    counted = up + down
    yield Outcome(
        "flower_bytes",
        f"bytes of one round as Flower's SuperLink counts them against fedsir's own count, {N_CLIENTS} sites, {MODEL}",
        sites["network_bytes"] / 1e6,
        counted / 1e6,
        "MB",
        is_at_most=True,
        details={"counted up": up, "counted down": down, "stored once at the SuperLink": "the model that goes down"},
    )
    yield memory()


def real_sites(folder: Path) -> dict[str, Any]:
    """Start ten sites and run some rounds; return seconds and network bytes of a round."""
    sys.path.insert(0, str(EXAMPLES))
    from three_sites import Machine, write_certificates

    random = np.random.default_rng(0)
    n = PER_CLIENT + PER_CLIENT // 4  # a fifth is held out
    labels = np.array([f"class {k}" for k in range(10)])[np.arange(n) % 10]
    with Machine(folder, quiet=True) as machine:
        write_certificates(folder)
        machine.start_superlink()
        machine.write_flower_config()
        for k in range(N_CLIENTS):
            images = random.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
            np.savez(folder / f"{k}.npz", images=images, labels=labels)
            machine.make_site(f"site{k}", f"{k}.npz")
            machine.register(f"site{k}")
            machine.start_site(f"site{k}")
        settings = {"model.name": "resnet18", "model.weights": "none", "evaluate_every": 1000}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        # The last round tests the model, so one more than are timed.
        machine.run("fedsir", "flower", "new", "app", "--method", "fedavg", "--rounds", str(REPEATS + 1), *words)
        machine.run_app(min_sites=N_CLIENTS)
        lines = [json.loads(line) for line in (folder / "app" / "run" / "metrics.jsonl").read_text().splitlines()]
        loading = min(
            seconds_of(lambda: subprocess.run([sys.executable, "-c", "import fedsir.deployment.site"], check=True))
            for _ in range(REPEATS)
        )
        with sqlite3.connect(f"file:{folder / 'superlink.db'}?mode=ro", uri=True) as database:
            ((sent, received),) = database.execute("SELECT SUM(bytes_sent), SUM(bytes_recv) FROM run").fetchall()
    timed = [line["seconds"] for line in lines[1:-1]]
    # Rounds 1 to the last send and fetch models; the first and last test sends the model once more to every site.
    model_down = lines[1]["bytes_down"]
    network = (sent + received - 2 * model_down) / (REPEATS + 1)
    return {"seconds": min(timed), "all": timed, "loading": loading, "network_bytes": network}


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
