"""A run depends on its settings alone: not on workers, interruptions, processes, or what was run before."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from contract_checks import IN_PART, essence
from fedsir.engines.replies import Replies
from fedsir.engines.wire import decode
from fedsir.methods.base import AnyMethod, Method
from fedsir.methods.registry import known_methods, method_class
from fedsir.methods.reply_check import Form
from fedsir.runs import checkpoint
from fedsir.runs.progress import Silent
from fedsir.runs.run_folder import RunFolder

Runner = Callable[..., Any]


def test_two_runs_are_the_same(method: str, run_tiny: Runner, straight_run: Runner) -> None:
    again = run_tiny(method)
    assert essence(again) == essence(straight_run(method))
    assert len(again.result["model_sha256"]) == 64


def test_another_seed_is_another_run(method: str, straight_run: Runner) -> None:
    assert straight_run(method, seed=1).result["model_sha256"] != straight_run(method).result["model_sha256"]


def test_the_number_of_workers_changes_nothing(method: str, run_tiny: Runner, straight_run: Runner) -> None:
    assert essence(run_tiny(method, workers=2)) == essence(straight_run(method))


def test_replies_that_wait_on_disk_change_nothing(
    method: str, run_tiny: Runner, straight_run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsir.engines.federation.Replies", partial(Replies, memory=0))
    assert essence(run_tiny(method)) == essence(straight_run(method))


class Interrupted(Exception):
    """Stands for Ctrl-C, a kill, a power cut."""


class StopAfterEachRound(Silent):
    def round_done(self, metrics: dict[str, Any]) -> None:
        raise Interrupted(metrics["round"])


@pytest.mark.parametrize("over", [{}, IN_PART], ids=["with all", "in part"])
def test_a_run_in_pieces_equals_a_straight_one(
    method: str, over: dict[str, Any], run_tiny: Runner, straight_run: Runner, tmp_path: Path
) -> None:
    straight, out = straight_run(method, **over), tmp_path / "in-pieces"
    for t in range(straight.config.rounds + 1):
        with pytest.raises(Interrupted) as stopped:
            run_tiny(method, out=out, progress=StopAfterEachRound(), **over)
        assert stopped.value.args == (t,)
    assert essence(run_tiny(method, out=out, **over)) == essence(straight)


# Runs the settings of every FILE.toml in this folder to the end, or until round 1 is done, into the folder FILE.
ANOTHER_PROCESS = """
import sys, tomllib
from pathlib import Path
from fedsir.runs.config import parse_config
from fedsir.runs.progress import Silent
from fedsir.runs.runner import RunTarget, run_experiment

class StopAfterRoundOne(Silent):
    def round_done(self, metrics):
        if metrics["round"] == 1:
            raise InterruptedError

for path in sorted(Path().glob("*.toml")):
    progress = StopAfterRoundOne() if sys.argv[1:] == ["begin"] else Silent()
    try:
        config = parse_config(tomllib.loads(path.read_text()))
        run_experiment(config, RunTarget(path.with_suffix(""), progress=progress))
    except InterruptedError:
        pass
"""


def test_another_process_goes_on_to_the_same_end(straight_run: Runner, tmp_path: Path) -> None:
    """Nothing hides in this process: neither memory in modules and classes, nor the order of a set."""
    methods = sorted(known_methods())  # all in the same two processes: to start one takes longer than a run
    for method in methods:
        (tmp_path / f"{method}.toml").write_text(straight_run(method).config.to_toml())
    for hash_seed, part in (("1", "begin"), ("2", "finish")):
        words = [sys.executable, "-c", ANOTHER_PROCESS, part]
        subprocess.run(words, cwd=tmp_path, env=os.environ | {"PYTHONHASHSEED": hash_seed}, check=True)
        assert all((tmp_path / method / "result.json").exists() == (part == "finish") for method in methods)
    for method in methods:
        straight, folder = straight_run(method), tmp_path / method
        elsewhere = replace(straight, folder=folder, result=json.loads((folder / "result.json").read_text()))
        assert essence(elsewhere) == essence(straight), method


def leaves(tree: dict[str, Any]) -> Iterator[Any]:
    """Yield what a tree of mappings holds."""
    for value in tree.values():
        yield from leaves(value) if isinstance(value, dict) else [value]


def test_the_state_survives_the_wire(method: str, straight_run: Runner) -> None:
    run = straight_run(method)
    content = RunFolder(run.folder).read_checkpoint()
    cls, model = method_class(method.split()[0]), decode(content)["state"]["model"]
    sizes = json.loads((run.folder / "data.json").read_text())["client_sizes"]
    form = Form.of(model, classes=10, features=64)
    snapshot = checkpoint.from_bytes(content, cls.State, form, sizes, run.config.sha256)
    assert snapshot.round == 2
    assert type(snapshot.state) is cls.State
    assert checkpoint.to_bytes(snapshot, run.config.sha256) == content
    for state in snapshot.client_states.values():
        assert all(isinstance(value, torch.Tensor) for value in leaves(decode(state)))


def test_a_method_remembers_nothing_outside_its_state(
    method: str, run_tiny: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[AnyMethod] = []
    original = Method.__init__

    def noted(self: AnyMethod, config: Any = None, **settings: Any) -> None:
        original(self, config, **settings)
        made.append(self)

    monkeypatch.setattr(Method, "__init__", noted)
    config = run_tiny(method).config.method
    assert made
    assert all(vars(instance) == {"config": config} for instance in made)
