"""Two runs at once on one machine: how long, and how much memory, against one after the other and against strangers.

Strangers do not know of each other: no slots for cores, and images in files of their own. Memory is the proportional
set size, in which a page that n processes share counts 1/n for each: the sum is what the machine holds. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.measure import Outcome, seconds_of
from fedsir.experiment.provenance import cores

N_IMAGES, N_TRAIN, ROUNDS, REPEATS = 4000, 1600, 2, 2
N_HOLDERS, N_HELD = 4, 60_000  # as many images as CIFAR has


def run() -> Iterator[Outcome]:
    with tempfile.TemporaryDirectory(prefix="fedsir-bench-") as name:
        folder = Path(name)
        random = np.random.default_rng(0)
        images = random.integers(0, 256, (N_IMAGES, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / "random.npz", images=images, labels=np.arange(N_IMAGES) % 10)
        yield from two_runs(folder)
        yield images_in_memory(folder)


def two_runs(folder: Path) -> Iterator[Outcome]:
    modes = {"together": [], "in turn": [], "strangers": []}  # type: dict[str, list[tuple[float, float]]]
    for k in range(REPEATS):
        for mode, measured in modes.items():
            peak = Peak()
            seconds = seconds_of(lambda mode=mode, k=k, peak=peak: run_both(folder, mode, k, peak))  # type: ignore[misc]
            measured.append((seconds, peak.megabytes))
    best = {mode: min(measured) for mode, measured in modes.items()}
    details = {f"MB, {mode}": round(megabytes) for mode, (_, megabytes) in best.items()}
    what = f"two runs of {ROUNDS} rounds, {N_TRAIN} images of 32×32, ResNet-18, {cores()} workers each, at once"
    together, in_turn, strangers = (best[mode][0] for mode in modes)
    yield Outcome("several_runs", f"{what}, against one after the other", together, in_turn, "s", details=details)
    yield Outcome(
        "several_runs_strangers", f"{what}, against strangers at once", together, strangers, "s", details=details
    )


def run_both(folder: Path, mode: str, repeat: int, peak: Peak) -> None:
    """Run two seeds, at once or in turn, and watch their memory."""
    started: list[subprocess.Popen[bytes]] = []
    for seed in (0, 1):
        place = folder / (f"tmp-{seed}" if mode == "strangers" else "tmp")
        place.mkdir(exist_ok=True)
        environment = {**os.environ, "TMPDIR": str(place), **({"FEDSIR_CORES": "off"} if mode == "strangers" else {})}
        words = [sys.executable, "-m", "fedsir", "run", "--dataset", str(folder / "random.npz"), "--method", "fedavg"]
        words += ["--rounds", str(ROUNDS), "--seed", str(seed), "--workers", str(cores())]
        words += ["--out", str(folder / f"{mode}-{seed}-{repeat}")]
        for setting in ("model.name=resnet18", f"data.n_train={N_TRAIN}", "data.n_test=100", "evaluate_every=100"):
            words += ["--set", setting]
        with (folder / f"{mode}-{seed}-{repeat}.log").open("wb") as log:
            run = subprocess.Popen(words, stdout=log, stderr=log, env=environment, start_new_session=True)
        started.append(run)
        peak.watch(run.pid)
        if mode == "in turn":
            run.wait()
    codes = [run.wait() for run in started]
    peak.stop()
    if any(codes):
        sys.exit((folder / f"{mode}-{codes.index(max(codes))}-{repeat}.log").read_text())


class Peak:
    """The largest sum of proportional set sizes over the processes of some sessions, looked at once a second."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        self._sessions: set[int] = set()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def watch(self, session: int) -> None:
        self._sessions.add(session)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._is_over.wait(1):
            now = sum(megabytes_of(pid) for pid in processes() if session_of(pid) in self._sessions)
            self.megabytes = max(self.megabytes, now)


def processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def megabytes_of(pid: int) -> float:
    """Return a process's proportional set size; 0 for one that ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


HOLDER = """
import sys
import numpy as np
from fedsir.data.arrays import fingerprint
from fedsir.engines.shared_images import shared_images
print(flush=True)
sys.stdin.readline()
images = np.random.default_rng(0).integers(0, 256, (int(sys.argv[2]), 3, 32, 32), dtype=np.uint8)
def hold(images):
    print(int(images.sum()), flush=True)  # so that every page is in memory
    sys.stdin.readline()
if sys.argv[1] == "private":
    hold(images)
else:
    with shared_images(images, fingerprint(images=images), n_processes=2) as (images, _):
        hold(images)
"""


def images_in_memory(folder: Path) -> Outcome:
    """Return what the images of several processes take, shared and not."""
    taken = {kind: megabytes_held(kind, folder) for kind in ("shared", "private")}
    one = N_HELD * 3072 / 1e6
    what = f"memory of {N_HELD:,} images of 32×32 ({one:.0f} MB) in {N_HOLDERS} processes, shared against private"
    return Outcome("several_runs_images", what, taken["shared"], taken["private"], "MB", target=0.3, is_at_most=True)


def megabytes_held(kind: str, folder: Path) -> float:
    """Return how much more memory the processes take with the images than before."""
    words, place = [sys.executable, "-c", HOLDER, kind, str(N_HELD)], {**os.environ, "TMPDIR": str(folder)}
    holders = [
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place)
        for _ in range(N_HOLDERS)
    ]

    def step() -> float:
        for holder in holders:
            assert holder.stdin and holder.stdout
            holder.stdout.readline()
        time.sleep(0.2)
        now = sum(megabytes_of(holder.pid) for holder in holders)
        for holder in holders:
            assert holder.stdin
            holder.stdin.write("\n")
            holder.stdin.flush()
        return now

    before = step()
    held = step()
    for holder in holders:
        holder.wait()
    return held - before
