"""Apps of `fedsir flower new` under `flwr run`: a method of one's own, and some of ours."""

import json
import os
import signal
import time
import tomllib
from pathlib import Path
from typing import Any

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


def in_simulation(machine: Watched, method: str, *changes: str) -> dict[str, Any]:
    """Write an app and run it in Flower's simulation of three nodes; return its result."""
    home = machine.folder / "flower"
    home.mkdir()
    (home / "config.toml").write_text(SIMULATION)
    machine.environment["RAY_worker_niceness"] = "0"
    words = [word for change in ("data.n_train=100", "data.n_test=50", *changes) for word in ("--set", change)]
    machine.run("fedsir", "flower", "new", "app", "--method", method, *words, "--rounds", "2", "--seed", "1")
    (machine.folder / "mine.py").unlink(missing_ok=True)  # the app has its own copy
    told = run_patiently(machine, "flwr", "run", "app", "local-simulation", "--stream")
    result: dict[str, Any] = json.loads(told.partition(RESULT)[2].splitlines()[0])
    for pid in machine.alive("flower-superlink"):  # flwr leaves one for the next run
        os.kill(pid, signal.SIGTERM)
    ends = time.monotonic() + 60
    while machine.alive() and time.monotonic() < ends:
        time.sleep(0.2)
    return result


def as_local(machine: Watched, **method: str) -> str:
    """Return the hash of the model that the app's settings end in without Flower."""
    tree = tomllib.loads((machine.folder / "app" / "run" / "config.toml").read_text())
    tree["method"] |= method
    config = parse_config(tree)
    assert config.data.n_clients == 3
    found: str = run_experiment(config, RunTarget(machine.folder / "local"))["model_sha256"]
    return found


def test_a_method_of_ones_own_in_flowers_simulation(machine: Watched) -> None:
    (machine.folder / "mine.py").write_text(METHOD)
    result = in_simulation(machine, "mine.py:Mine")
    code = machine.folder / "app" / "app_app" / "mine.py"
    assert result["model_sha256"] == as_local(machine, name=f"{code}:Mine")


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedsir", ("method.identify.epochs=1",)),
        ("fedcorr", ()),
        ("rhfl", ('data.public="held-out"', "method.pretrain_epochs=1")),
    ],
)
def test_a_registered_method_in_flowers_simulation(machine: Watched, method: str, changes: tuple[str, ...]) -> None:
    assert in_simulation(machine, method, *changes)["model_sha256"] == as_local(machine)
