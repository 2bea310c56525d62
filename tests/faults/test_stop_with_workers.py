"""Ends from outside while worker processes compute: nothing stays behind, and the run goes on."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsir.engines import user_folder
from fedsir.engines.core_slots import CoreSlots
from fedsir.engines.shared_images import shared_files
from fedsir.experiment.config import RunConfig
from fedsir.experiment.runner import Where, run_experiment

if not Path("/proc/self/stat").exists():
    pytest.skip("looks at processes in /proc", allow_module_level=True)

Settings = Callable[..., RunConfig]
FEDAVG = {"rounds": 40, "name": "fedavg"}


def hidden(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith(".")}


def test_workers_end_when_the_main_process_is_killed(start: Callable[..., Any], tmp_path: Path, tiny: Settings) -> None:
    out = tmp_path / "run"
    session = start(tiny(**FEDAVG), out, workers=2)
    session.wait_for_rounds(2)
    assert len(session.members()) >= 3, "two workers and the main process"
    os.kill(session.process.pid, signal.SIGKILL)
    assert session.leftovers(within=8) == {}
    assert session.process.wait() == -signal.SIGKILL
    result = run_experiment(tiny(**FEDAVG), Where(out, workers=1))
    straight = run_experiment(tiny(**FEDAVG), Where(tmp_path / "straight"))
    assert result["model_sha256"] == straight["model_sha256"]
    assert hidden(out) == {".lock"}


def test_ctrl_c_at_a_terminal_leaves_a_run_that_goes_on_and_no_process(
    start: Callable[..., Any], tmp_path: Path, tiny: Settings
) -> None:
    out = tmp_path / "run"
    session = start(tiny(**FEDAVG), out, workers=2)
    session.wait_for_rounds(2)
    os.killpg(session.process.pid, signal.SIGINT)  # a terminal sends it to every process in front
    printed, log = session.process.communicate(timeout=20)
    assert session.process.returncode == 130
    assert printed == ""
    assert "Traceback" not in log
    assert log.splitlines()[-1] == f"fedsir: stopped; the same command goes on from the last round in {out}."
    assert session.leftovers(within=8) == {}
    assert hidden(out) == {".lock"}
    done = len((out / "metrics.jsonl").read_text().splitlines())
    assert 2 <= done <= 40
    assert run_experiment(tiny(**FEDAVG), Where(out))["rounds"] == 40
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 41


@pytest.mark.skipif(not user_folder.HAS_LOCKS, reason="needs locks on open files")
def test_workers_that_wait_for_a_core_end_with_the_main_process(
    start: Callable[..., Any], tmp_path: Path, tiny: Settings, own_temporary_folder: Path
) -> None:
    slots = CoreSlots.of_machine()
    assert slots is not None
    with contextlib.ExitStack() as taken:
        for core in slots.cores:
            taken.enter_context(CoreSlots(slots.folder, [core]).held())
        session = start(tiny(**FEDAVG), tmp_path / "run", workers=2)
        turn, deadline = user_folder.opened(slots.folder / "turn"), time.monotonic() + 100
        while user_folder.try_lock(turn):  # until a worker waits there
            user_folder.unlock(turn)
            assert time.monotonic() < deadline, "no worker came to wait"
            time.sleep(0.05)
        os.kill(session.process.pid, signal.SIGKILL)
        assert session.leftovers(within=30) == {}
        assert user_folder.try_lock(turn)
        os.close(turn)
        assert not (tmp_path / "run" / "metrics.jsonl").exists()  # they did wait
    assert [file.is_in_use for file in shared_files()] == [False]
    result = run_experiment(tiny(**FEDAVG), Where(tmp_path / "run"))
    assert result["rounds"] == 40
    assert shared_files() == []


START_ENGINE = """
from types import SimpleNamespace
from fedsir.engines.local import WorkerEngine
if __name__ == "__main__":
    WorkerEngine(SimpleNamespace(device="cpu"), 1)
"""


def test_the_fork_server_ignores_ctrl_c_from_its_first_moment(tmp_path: Path) -> None:
    script = tmp_path / "start.py"
    script.write_text(START_ENGINE)
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.DEVNULL)
    ignored: list[int] = []

    def watch() -> None:
        while process.poll() is None and not ignored:
            for entry in Path("/proc").iterdir():
                try:
                    if b"multiprocessing.forkserver" in (entry / "cmdline").read_bytes():
                        status = dict(line.split(":\t", 1) for line in (entry / "status").read_text().splitlines())
                        if int(status["PPid"]) == process.pid:
                            ignored.append(int(status["SigIgn"], 16))
                except (OSError, KeyError):  # not a process, or one that ended
                    continue
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait(timeout=60)
    watcher.join()
    assert ignored, "no fork server was seen"
    assert ignored[0] & 1 << (signal.SIGINT - 1)
