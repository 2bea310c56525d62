"""An app of `fedsir flower new` under `flwr run`, with a method of one's own."""

import json
import os
import signal
import time
import tomllib
from pathlib import Path

import pytest
from watched_machine import Watched

from fedsir.deployment.server import RESULT
from fedsir.runs.config import parse_config
from fedsir.runs.runner import RunTarget, run_experiment

if not Path("/proc/self/environ").exists():
    pytest.skip("looks at processes in /proc", allow_module_level=True)

pytestmark = [pytest.mark.flower, pytest.mark.slow]
SIMULATION = """
[superlink]
default = "local-simulation"
[superlink.local-simulation]
address = ":local:"
options.num-supernodes = 3
options.backend.client-resources.num-cpus = 1
options.backend.client-resources.num-gpus = 0
"""
METHOD = """
from fedsir.methods.fedavg import FedAvg

class Mine(FedAvg):
    name = "mine"
"""


def run_patiently(machine: Watched, *words: str) -> str:
    """Run a command again if Flower gave its SuperLink too little time to start, which it does on a busy machine."""
    for _ in range(3):
        try:
            return machine.run(*words)
        except RuntimeError as problem:
            if "Failed to start local SuperLink" not in str(problem):
                raise
    return machine.run(*words)


def test_a_method_of_ones_own_in_flowers_simulation(machine: Watched) -> None:
    home = machine.folder / "flower"
    home.mkdir()
    (home / "config.toml").write_text(SIMULATION)
    (machine.folder / "mine.py").write_text(METHOD)
    machine.environment["RAY_worker_niceness"] = "0"
    changes = ("--set", "data.n_train=100", "--set", "data.n_test=50", "--rounds", "2", "--seed", "1")
    machine.run("fedsir", "flower", "new", "app", "--method", "mine.py:Mine", *changes)
    (machine.folder / "mine.py").unlink()  # the app has its own copy
    told = run_patiently(machine, "flwr", "run", "app", "local-simulation", "--stream")
    result = json.loads(told.partition(RESULT)[2].splitlines()[0])

    code = machine.folder / "app" / "app_app" / "mine.py"
    tree = tomllib.loads((machine.folder / "app" / "run" / "config.toml").read_text())
    tree["method"]["name"] = f"{code}:Mine"
    config = parse_config(tree)
    assert config.data.n_clients == 3
    local = run_experiment(config, RunTarget(machine.folder / "local"))
    assert result["model_sha256"] == local["model_sha256"]
    for pid in machine.alive("flower-superlink"):  # flwr leaves one for the next run
        os.kill(pid, signal.SIGTERM)
    ends = time.monotonic() + 60
    while machine.alive() and time.monotonic() < ends:
        time.sleep(0.2)
