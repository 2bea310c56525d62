"""Slots for cores: never more holders than slots, whoever holds them, and no wait without end."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fedsir.engines import user_folder
from fedsir.engines.core_slots import CoreSlots, NotWanted, machine_cores, usable_cores
from fedsir.errors import ConfigError

if not user_folder.HAS_LOCKS:
    pytest.skip("needs locks on open files", allow_module_level=True)


def soon(seconds: float = 60) -> Callable[[], bool]:
    """Return what ends a wait that should have ended long ago."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def wait_until(is_so: Callable[[], bool]) -> None:
    is_in_time = soon()
    while not is_so():
        assert is_in_time(), "it never came to that"
        time.sleep(0.001)


def is_locked(path: Path) -> bool:
    descriptor = user_folder.opened(path)
    try:
        return not user_folder.try_lock(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def process_with_slot(folder: Path) -> Iterator[int]:
    """Another process that holds core 0 until the block ends; its id."""
    code = (
        "import sys; from pathlib import Path; from fedsir.engines.core_slots import CoreSlots\n"
        "with CoreSlots(Path(sys.argv[1]), [0]).held():\n"
        "    print('holding', flush=True)\n"
        "    sys.stdin.readline()\n"
    )
    words = [sys.executable, "-c", code, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "holding\n"
        try:
            yield process.pid
        finally:
            process.kill()


def test_slots_are_held_and_let_go(tmp_path: Path) -> None:
    first, second = CoreSlots(tmp_path, [0, 3]), CoreSlots(tmp_path, [0, 3])
    watch = CoreSlots(tmp_path, [0, 3])
    with first.held():
        assert watch.n_in_use() == 1
        with second.held():
            assert watch.n_in_use() == 2
            with pytest.raises(NotWanted), CoreSlots(tmp_path, [0, 3]).held(lambda: False):
                pytest.fail("there are only two")
        assert watch.n_in_use() == 1
    with pytest.raises(ValueError, match="of a task"), first.held():
        raise ValueError("of a task")
    assert watch.n_in_use() == 0
    assert not is_locked(tmp_path / "turn")


def test_runs_bound_to_different_cores_do_not_wait_for_each_other(tmp_path: Path) -> None:
    with CoreSlots(tmp_path, [0]).held(), CoreSlots(tmp_path, [1]).held(soon()):
        assert CoreSlots(tmp_path, [0, 1, 2]).n_in_use() == 2
        with pytest.raises(NotWanted), CoreSlots(tmp_path, [1]).held(lambda: False):
            pytest.fail("core 1 is taken")


def test_another_process_gets_the_slots_not_the_hold(tmp_path: Path) -> None:
    slots = CoreSlots(tmp_path, [0])
    with slots.held():
        other = pickle.loads(pickle.dumps(slots))
        assert other.n_in_use() == 1
        with pytest.raises(NotWanted), other.held(lambda: False):
            pytest.fail("it is held here")


def test_who_waits_comes_before_who_has_just_computed(tmp_path: Path) -> None:
    order = []
    eager, patient = CoreSlots(tmp_path, [0]), CoreSlots(tmp_path, [0])

    def wait_for_turn() -> None:
        with patient.held(soon()):
            order.append("patient")

    waiting = threading.Thread(target=wait_for_turn)
    with eager.held():
        order.append("eager")
        waiting.start()
        wait_until(lambda: is_locked(tmp_path / "turn"))
    with eager.held(soon()):  # at once, as a worker does that gets its next client
        order.append("eager")
    waiting.join()
    assert order == ["eager", "patient", "eager"]


def test_never_more_holders_than_slots_and_nobody_starves(tmp_path: Path) -> None:
    lock, holding, most, done = threading.Lock(), set[int](), [0], [0] * 6
    is_in_time = soon()

    def work(k: int) -> None:
        slots = CoreSlots(tmp_path, [0, 1])
        while min(done) < 3 and is_in_time():  # until everybody had three turns
            with slots.held(is_in_time):
                with lock:
                    holding.add(k)
                    most[0] = max(most[0], len(holding))
                time.sleep(0.001)
                with lock:
                    holding.remove(k)
            done[k] += 1
        slots.close()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [2]
    assert min(done) >= 3


def test_a_killed_process_leaves_its_slot(tmp_path: Path) -> None:
    slots = CoreSlots(tmp_path, [0])
    with process_with_slot(tmp_path) as pid:
        assert slots.n_in_use() == 1
        with pytest.raises(NotWanted), slots.held(lambda: False):
            pytest.fail("it is held there")
        os.kill(pid, signal.SIGKILL)
        with slots.held(soon()):
            pass


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_nobody_waits_for_a_process_that_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsir.engines.core_slots.STOPPED_PAUSE", 0.05)
    slots = CoreSlots(tmp_path, [0])
    with process_with_slot(tmp_path) as pid:
        os.kill(pid, signal.SIGSTOP)
        with slots.held(soon()):
            assert is_locked(tmp_path / "core-0")  # still the other's: its slot is passed by, not taken
        os.kill(pid, signal.SIGCONT)
        with pytest.raises(NotWanted), slots.held(soon(0.5)):
            pytest.fail("it computes again")


def test_a_disk_that_is_full_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    with CoreSlots(tmp_path, [0]).held():
        assert is_locked(tmp_path / "core-0")


def test_cores_are_those_of_this_process_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    monkeypatch.setattr("fedsir.engines.core_slots.machine_cores", lambda: (2, 5))
    monkeypatch.delenv("FEDSIR_CORES", raising=False)
    assert usable_cores() == (2, 5)
    slots = CoreSlots.of_machine()
    assert slots is not None
    assert (slots.cores, slots.folder.parent) == ((2, 5), own_temporary_folder)
    for told, cores in (("1", (2,)), ("2", (2, 5)), ("4", (2, 5, 6, 7)), ("off", (2, 5)), ("", (2, 5))):
        monkeypatch.setenv("FEDSIR_CORES", told)
        assert usable_cores() == cores
    monkeypatch.setenv("FEDSIR_CORES", "off")
    assert CoreSlots.of_machine() is None
    for told in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("FEDSIR_CORES", told)
        with pytest.raises(ConfigError, match=f"FEDSIR_CORES must be a number of cores from 1, or off .*{told}"):
            usable_cores()


def test_a_system_without_locks_or_temporary_files_has_no_slots(
    monkeypatch: pytest.MonkeyPatch, own_temporary_folder: Path
) -> None:
    monkeypatch.delenv("FEDSIR_CORES", raising=False)
    assert CoreSlots.of_machine() is not None
    with monkeypatch.context() as patch:
        patch.setattr(user_folder, "HAS_LOCKS", False)
        assert CoreSlots.of_machine() is None
    monkeypatch.setattr("tempfile.tempdir", str(own_temporary_folder / "missing"))
    assert CoreSlots.of_machine() is None


def test_a_process_bound_to_a_core_counts_one() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system does not bind processes to cores")
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        assert machine_cores() == (core,)
    finally:
        os.sched_setaffinity(0, before)
