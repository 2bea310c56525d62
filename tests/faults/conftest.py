"""Runs that get killed: small settings, and a look at the processes of a session."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fedsir.runs.config import RunConfig
from fedsir.runs.recipes import resolve

DATA = {"n_train": 60, "n_test": 20, "n_clients": 3}


@pytest.fixture
def tiny() -> Callable[..., RunConfig]:
    """Return a function from a method's settings to those of a tiny run."""

    def settings(rounds: int, **method: Any) -> RunConfig:
        return resolve("digits", {"rounds": rounds, "data": DATA, "method": method})

    return settings


class Session:
    """A `fedsir` command in a session of its own, whose processes can be counted."""

    def __init__(self, words: Sequence[str], runs: Sequence[Path]) -> None:
        self.runs = runs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fedsir", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Shells ignore Ctrl-C for what they start in the background, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    def wait_for_rounds(self, n: int) -> None:
        """Return once n rounds of each run have their line in metrics.jsonl."""
        files = [run / "metrics.jsonl" for run in self.runs]
        deadline = time.monotonic() + 100
        while not all(file.exists() and file.read_bytes().count(b"\n") >= n for file in files):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the run is too slow"
            time.sleep(0.01)

    def members(self) -> dict[int, str]:
        """Return process id → command of the session's living processes."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
                continue
            if int(session) == self.process.pid and state != "Z":
                found[int(entry.name)] = command
        return found

    def leftovers(self, within: float) -> dict[int, str]:
        """Return what is still alive after waiting up to that many seconds."""
        deadline = time.monotonic() + within
        while (alive := self.members()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return alive

    def close(self) -> None:
        for pid in self.members():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.communicate()


@pytest.fixture
def start_command() -> Iterator[Callable[..., Session]]:
    """Return a function that starts a `Session`; whatever a test leaves of it is ended."""
    started: list[Session] = []

    def command(words: Sequence[str], runs: Sequence[Path]) -> Session:
        started.append(Session(words, runs))
        return started[-1]

    yield command
    for session in started:
        session.close()


@pytest.fixture
def start(start_command: Callable[..., Session]) -> Callable[..., Session]:
    """Return a function that starts a `fedsir run`."""

    def run(config: RunConfig, out: Path, workers: int) -> Session:
        recipe = out.with_suffix(".toml")
        recipe.write_text(config.to_toml())
        return start_command(["run", str(recipe), "--out", str(out), "--workers", str(workers)], [out])

    return run
