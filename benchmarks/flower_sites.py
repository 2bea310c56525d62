"""Real sites on this machine for `bench_flower`: how long a round takes, what it sends, who computes."""

from __future__ import annotations

import json
import resource
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import numpy as np

from benchmarks.processor import of_machine, processes

EXAMPLES = Path(__file__).parents[1] / "examples"
LOOK_EVERY = 0.2  # seconds; what a process does between the last look and its end is missed
KINDS = {
    "flwr-clientapp": "sites' processes, one a message",
    "flower-supernode": "SuperNodes and their helpers",
    "flower-superexec": "SuperNodes and their helpers",
    "flower-superlink": "SuperLink",
    "flwr-serverapp": "server's app",
}
OTHERS = "everything else on the machine"


@dataclass(frozen=True)
class SitesRound:
    """What a round over real sites took.

    Attributes
    ----------
    seconds : of each timed round
    processor : seconds of processor time by whose it is, of the fastest round
    network_bytes : up and down, as the SuperLink counts them, mean of all rounds
    """

    seconds: list[float]
    processor: dict[str, float]
    network_bytes: float


def measure_sites(folder: Path, n_sites: int, per_site: int, n_rounds: int) -> SitesRound:
    """Start sites with TLS and keys, and run some FedAvg rounds over them."""
    sys.path.insert(0, str(EXAMPLES))
    from three_sites import Machine, write_certificates

    random = np.random.default_rng(0)
    n = per_site + per_site // 4  # a fifth is held out
    labels = np.array([f"class {k}" for k in range(10)])[np.arange(n) % 10]
    with Machine(folder, quiet=True) as machine:
        write_certificates(folder)
        machine.start_superlink()
        machine.write_flower_config()
        for k in range(n_sites):
            images = random.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
            np.savez(folder / f"{k}.npz", images=images, labels=labels)
            machine.make_site(f"site{k}", f"{k}.npz")
            machine.register(f"site{k}")
            machine.start_site(f"site{k}")
        settings = {"model.name": "resnet18", "model.weights": "none", "evaluate_every": 1000}
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={json.dumps(value)}")]
        # The last round tests the model, so one more than are timed.
        machine.run("fedsir", "flower", "new", "app", "--method", "fedavg", "--rounds", str(n_rounds + 1), *words)
        file = folder / "app" / "run" / "metrics.jsonl"
        with Watch(folder / "flower", file) as watch:
            machine.run_app(min_sites=n_sites)
        with sqlite3.connect(f"file:{folder / 'superlink.db'}?mode=ro", uri=True) as database:
            ((sent, received),) = database.execute("SELECT SUM(bytes_sent), SUM(bytes_recv) FROM run").fetchall()
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    if failures := [line["failures"] for line in lines if line["failures"]]:
        raise RuntimeError(f"sites were left out, so that rounds are no rounds of {n_sites}: {failures}")
    timed = [line["seconds"] for line in lines[1:-1]]
    fastest = 1 + int(np.argmin(timed))
    # Rounds 1 to the last send and fetch models; the first and last test send the model once more to every site.
    network = (sent + received - 2 * lines[1]["bytes_down"]) / (n_rounds + 1)
    return SitesRound(timed, watch.processor_seconds(fastest), network)


class Watch:
    """Looks at the processes of a federation and at the run's file, and notes processor seconds at each new line."""

    def __init__(self, flower_home: Path, file: Path) -> None:
        self._mark, self._file = f"FLWR_HOME={flower_home}".encode(), file
        self._by_process: dict[int, tuple[str, float]] = {}
        self._at_line: list[dict[str, float]] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    def processor_seconds(self, line: int) -> dict[str, float]:
        """Return processor seconds between two lines, by whose they are; none where there is no /proc."""
        if line >= len(self._at_line):
            return {}
        before, after = self._at_line[line - 1], self._at_line[line]
        spent = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        spent[OTHERS] -= sum(seconds for kind, seconds in spent.items() if kind != OTHERS)
        return {kind: round(seconds, 1) for kind, seconds in sorted(spent.items(), key=lambda item: -item[1])}

    def _look(self) -> None:
        while not self._end.wait(LOOK_EVERY):
            n_lines = self._file.read_bytes().count(b"\n") if self._file.exists() else 0
            self._look_at_processes()
            if len(self._at_line) < n_lines and Path("/proc/stat").exists():
                sums = defaultdict(float, {OTHERS: of_machine()})
                for kind, seconds in self._by_process.values():
                    sums[kind] += seconds
                self._at_line += [sums] * (n_lines - len(self._at_line))

    def _look_at_processes(self) -> None:
        for process in processes(self._mark):
            kind = next((kind for word, kind in KINDS.items() if word in process.command), None)
            if kind is not None:
                self._by_process[process.id] = (kind, process.seconds)


def loading_seconds() -> float:
    """Return the processor seconds that a site's process takes to load; the first optimiser loads torch._dynamo."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import fedsir.deployment.site, torch._dynamo"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
