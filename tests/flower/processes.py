"""Processes that a test starts, found again by a mark in their environment, whatever session they are in."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4


class Marked:
    """Commands with a mark that they hand on to everything they start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"FEDSIR_TEST_MARK={uuid4().hex}"
        name, _, value = self.mark.partition("=")
        self.environment = {**os.environ, name: value, "OMP_NUM_THREADS": "1"}

    def start(self, *words: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment | extra,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def fedsir(self, *words: str) -> subprocess.Popen[str]:
        return self.start(sys.executable, "-m", "fedsir", *words)

    def alive(self) -> dict[int, str]:
        """Return process id → command of all that carry the mark."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if self.mark.encode() in (entry / "environ").read_bytes().split(b"\0"):
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except OSError:  # it has ended, or is somebody else's
                    continue
        return {pid: command for pid, command in found.items() if command}

    def leftovers(self, within: float) -> dict[int, str]:
        """Return what is still alive after so many seconds; at once if nothing is."""
        ends = time.monotonic() + within
        while (alive := self.alive()) and time.monotonic() < ends:
            time.sleep(0.1)
        return alive

    def kill_all(self) -> None:
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


def wait_for_lines(file: Path, n: int, process: subprocess.Popen[str], within: float = 200) -> None:
    """Return once a file has n lines, while a process lives."""
    ends = time.monotonic() + within
    while not (file.exists() and file.read_bytes().count(b"\n") >= n):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends, f"{file} does not get {n} lines"
        time.sleep(0.05)
