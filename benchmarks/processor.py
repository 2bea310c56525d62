"""Processor time by process, from /proc: on a shared machine it says more than the clock."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Process:
    """A process that is alive: who started it, its command, the processor seconds it has had."""

    id: int
    parent: int
    command: str
    seconds: float


def processes(mark: bytes = b"") -> Iterator[Process]:
    """Yield those alive; with a mark, those that have it among the variables of their environment."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark and mark not in (entry / "environ").read_bytes().split(b"\0"):
                continue
            command = (entry / "cmdline").read_bytes().decode(errors="replace")
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended, or is somebody else's
            continue
        yield Process(int(entry.name), int(words[1]), command, _seconds(words[11:13]))


def of_this_tree(*, with_ray: bool) -> float:
    """Return the processor seconds of this process and of all below it; Ray's only if asked for."""
    found = {process.id: process for process in processes()}

    def is_ours(process: Process) -> bool:
        return process.id == os.getpid() or (process.parent in found and is_ours(found[process.parent]))

    ours = [process for process in found.values() if is_ours(process)]
    return sum(p.seconds for p in ours if with_ray or not ("ray::" in p.command or "/ray/" in p.command))


def of_machine() -> float:
    """Return the processor seconds of everything since the machine started."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _waiting, *interrupts = stat.read_text().split()[1:8]
    return _seconds([user, nice, system, *interrupts])


def _seconds(ticks: Sequence[str]) -> float:
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
