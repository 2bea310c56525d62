"""`fedsir run --engine flower`: our loop, folder and output around Flower's simulation, and nothing left behind."""

import json
import os
import signal
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import Marked, wait_for_lines

from fedsir.runs.config import parse_config
from fedsir.runs.runner import RunTarget, run_experiment

if not Path("/proc/self/environ").exists():
    pytest.skip("looks at processes in /proc", allow_module_level=True)

pytestmark = pytest.mark.flower
# Ray's agents look for their parent every 0.4 s and believe the fifth look (ray/_private/process_watcher.py), then try
# to tell the dead server for ray_simulation.FAREWELL seconds, each on a machine that may be busy with other tests.
AGENTS_END_WITHIN = 120.0  # seconds; the wait is over when they are gone
SETTINGS = """
rounds = 6
[data]
dataset = "digits"
n_train = 100
n_test = 50
n_clients = 3
[method]
name = "fedavg"
epochs = 1
"""


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    found = Marked(tmp_path)
    yield found
    found.kill_all()


def test_a_killed_run_leaves_no_process_and_goes_on_to_the_same_model(marked: Marked, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(SETTINGS)
    words = ("run", "tiny.toml", "--engine", "flower", "--workers", "1", "--out", "run", "--json")
    first = marked.fedsir(*words)
    wait_for_lines(tmp_path / "run" / "metrics.jsonl", 2, first)
    assert any("raylet" in command for command in marked.alive().values())
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert marked.leftovers(within=AGENTS_END_WITHIN) == {}

    second = marked.fedsir(*words)
    out, err = second.communicate(timeout=300)
    assert second.returncode == 0, err
    assert marked.leftovers(within=AGENTS_END_WITHIN) == {}
    assert "flwr" not in err.lower() and "ray" not in err.lower().replace("array", "")
    result = json.loads(out)
    local = run_experiment(parse_config(tomllib.loads(SETTINGS)), RunTarget(tmp_path / "local"))
    assert result["model_sha256"] == local["model_sha256"]
    assert json.loads((tmp_path / "run" / "provenance.json").read_text())["engine"] == "flower"
    assert (result["bytes_up"], result["bytes_down"]) == (local["bytes_up"], local["bytes_down"])


SCRIPT = """
import fedsir
if __name__ == "__main__":
    data = fedsir.FederatedData.load("digits", n_train=60, n_test=20, n_clients=3)
    simulation = fedsir.simulate(data, "fedavg", rounds=5, engine="flower")
    print(next(simulation).round)
"""


@pytest.mark.slow
def test_a_script_that_does_not_close_its_simulation_ends(marked: Marked, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    process = marked.start(sys.executable, "script.py")
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out) == (0, "0\n"), err
    assert marked.leftovers(within=AGENTS_END_WITHIN) == {}
