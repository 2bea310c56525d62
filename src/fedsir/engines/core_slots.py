"""Whose turn it is to compute: one slot per core, shared by all processes of all of a user's runs on this machine.

A slot is a locked file, so a process that is killed leaves its slot. A process that finds all slots taken first waits
for its turn (one more locked file); only who has the turn looks for a slot. So a process that has just computed cannot
snatch its slot back from one that has waited. Nobody waits for anything while holding a slot.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fedsir.engines import user_folder
from fedsir.errors import ConfigError

VARIABLE, OFF = "FEDSIR_CORES", "off"
# Seconds between two looks. The one who has the turn looks for a slot often at first, so that a core is not idle for
# more than a hundredth of the wait. All others look for the turn at equal times: who came late has no better chance.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.01
STOPPED_PAUSE = 1.0  # between two looks at whether a holder is stopped


class NotWanted(Exception):
    """Nobody wants the result any more, so there is nothing to wait for."""


def machine_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def usable_cores() -> tuple[int, ...]:
    """Return the cores to compute on: those of this process, or as many as FEDSIR_CORES says."""
    found, told = machine_cores(), os.environ.get(VARIABLE, "")
    if told in ("", OFF):
        return found
    if not told.isdecimal() or int(told) < 1:
        raise ConfigError(f"{VARIABLE} must be a number of cores from 1, or {OFF} (given: {told!r})")
    more = range(found[-1] + 1, found[-1] + 1 + int(told) - len(found))
    return (*found[: int(told)], *more)


class CoreSlots:
    """Slots in a folder, one per core. Another process gets them by pickling: it opens the files anew.

    Parameters
    ----------
    cores : their numbers name the slots, so that runs bound to different cores do not wait for each other
    """

    def __init__(self, folder: Path, cores: Sequence[int]) -> None:
        self.folder, self.cores = folder, tuple(cores)
        self._turn: int | None = None
        self._slots: list[int] = []

    @classmethod
    def of_machine(cls) -> CoreSlots | None:
        """Return the slots that this user's runs share; None where that is switched off or cannot be done."""
        cores = usable_cores()
        if os.environ.get(VARIABLE) == OFF or not user_folder.HAS_LOCKS:
            return None
        try:
            return cls(user_folder.user_folder(), cores)
        except OSError:  # no place for temporary files: then this run cannot know of others
            return None

    def __reduce__(self) -> tuple[type[CoreSlots], tuple[Path, tuple[int, ...]]]:
        return CoreSlots, (self.folder, self.cores)

    @contextlib.contextmanager
    def held(self, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Wait for a slot, hold it inside the block; raise `NotWanted` once the result is not wanted any more."""
        self._open()
        assert self._turn is not None, "it is open now"
        turn = _lock_one([self._turn], LONGEST_PAUSE, is_wanted)
        try:
            slot = _lock_one(self._slots, SHORTEST_PAUSE, is_wanted)
        finally:
            if turn is not None:
                user_folder.unlock(turn)
        try:
            yield
        finally:
            if slot is not None:
                user_folder.unlock(slot)

    def n_in_use(self) -> int:
        """Return how many slots are held now; must not be called while holding one."""
        self._open()
        return sum(not _is_free(slot) for slot in self._slots)

    def _open(self) -> None:
        if self._turn is None:
            self._slots = [user_folder.opened(self.folder / f"core-{core}") for core in self.cores]
            self._turn = user_folder.opened(self.folder / "turn")

    def close(self) -> None:
        """Close the files."""
        for descriptor in (*self._slots, *(() if self._turn is None else (self._turn,))):
            os.close(descriptor)
        self._turn, self._slots = None, []


def _lock_one(files: Sequence[int], shortest: float, is_wanted: Callable[[], bool]) -> int | None:
    """Wait for one of some files and lock it; None, without a lock, if the process that has one is stopped."""
    began = time.monotonic()
    next_look = began + STOPPED_PAUSE
    while True:
        for file in files:
            if user_folder.try_lock(file):
                _sign(file)
                return file
        if not is_wanted():
            raise NotWanted
        now = time.monotonic()
        if now > next_look:
            # Someone pressed Ctrl-Z there. It uses no core, and nobody knows for how long: do not wait for it.
            if any(_is_stopped(file) for file in files):
                return None
            next_look = now + STOPPED_PAUSE
        time.sleep(min(max(shortest, (now - began) / 100), LONGEST_PAUSE))


def _sign(file: int) -> None:
    """Write who holds the file."""
    with contextlib.suppress(OSError):  # a full disk: the lock counts, the name is only for `_is_stopped`
        os.pwrite(file, b"%10d" % os.getpid(), 0)


def _is_stopped(file: int) -> bool:
    """Whether the process that holds the file is stopped; False where the system has no /proc."""
    try:
        status = Path(f"/proc/{int(os.pread(file, 10, 0))}/stat").read_text(encoding="utf-8")
    except (OSError, ValueError):  # no /proc, or no holder any more, or one that has not signed yet
        return False
    return status.rpartition(")")[2].split()[0] in ("T", "t")


def _is_free(file: int) -> bool:
    is_free = user_folder.try_lock(file)
    if is_free:
        user_folder.unlock(file)
    return is_free
