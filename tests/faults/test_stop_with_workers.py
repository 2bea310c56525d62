"""Ends from outside while worker processes compute: nothing stays behind, and the run goes on."""

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

from fedsir.runs.config import RunConfig
from fedsir.runs.runner import RunTarget, run_experiment

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
    result = run_experiment(tiny(**FEDAVG), RunTarget(out, workers=1))
    straight = run_experiment(tiny(**FEDAVG), RunTarget(tmp_path / "straight"))
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
    assert run_experiment(tiny(**FEDAVG), RunTarget(out))["rounds"] == 40
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 41


START_ENGINE = """
from fedsir.engines.local import start, start_method
if __name__ == "__main__":
    start(start_method("cpu").Process(target=print))
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
                            ignored.append(int(status["SigIgn"], 16) | int(status["SigBlk"], 16))
                except (OSError, KeyError):  # not a process, or one that ended
                    continue
            time.sleep(0.005)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait(timeout=60)
    watcher.join()
    assert ignored, "no fork server was seen"
    assert ignored[0] & 1 << (signal.SIGINT - 1)
