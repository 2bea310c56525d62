"""A sweep that is killed or interrupted: no run goes on without it, and every run can go on from its last round."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsir.engines.wire import decode
from fedsir.runs.config import RunConfig
from fedsir.runs.run_folder import RunFolder
from fedsir.runs.runner import default_out

if not Path("/proc/self/stat").exists():
    pytest.skip("needs /proc", allow_module_level=True)

ROUNDS = 400
SWEEP = f"""
recipe = "digits"
[settings]
rounds = {ROUNDS}
data = {{ n_train = 60, n_test = 20, n_clients = 3 }}
method.name = "fedavg"
[[grid]]
seed = [0, 1]
"""


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_nothing_goes_on_and_the_runs_can(
    way: signal.Signals, start_command: Callable[..., Any], tiny: Callable[..., RunConfig], tmp_path: Path
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    first = tiny(ROUNDS, name="fedavg")
    configs = [first, first.model_copy(update={"seed": 1})]
    folders = [tmp_path / "runs" / default_out(config).name for config in configs]
    words = ["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "runs"), "--workers", "2"]
    session = start_command(words, folders)
    session.wait_for_rounds(3)
    if way is signal.SIGINT:
        os.killpg(session.process.pid, way)  # a terminal sends it to all processes in the foreground
        assert "the same command goes on" in session.process.communicate(timeout=60)[1]
        assert session.process.returncode == 130
    else:
        session.process.kill()
    assert session.leftovers(within=30) == {}
    for config, folder in zip(configs, folders, strict=True):
        run = RunFolder(folder)
        n_rounds = len(run.metrics())
        assert 3 <= n_rounds < ROUNDS, "too fast to be stopped"
        with run.opened(config):  # nobody holds it any more
            content = run.read_checkpoint()
        assert content is not None
        assert n_rounds - 2 <= decode(content)["round"] < n_rounds  # at most the round that it was in is lost
