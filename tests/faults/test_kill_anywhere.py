"""SIGKILL at chosen moments: the same command then ends in the same model and leaves no traces."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fedsir.runs.config import RunConfig
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, run_experiment

if not hasattr(os, "fork"):
    pytest.skip("needs fork", allow_module_level=True)

# Loads everything once, then forks a process per moment, which kills itself there.
DRIVER = """
import os, signal, sys
from pathlib import Path
import sklearn.cluster, sklearn.datasets, sklearn.mixture, torch._dynamo
from fedsir.engines.client_host import ClientHost
from fedsir.runs.recipes import resolve
from fedsir.runs.run_folder import RunFolder
from fedsir.runs.runner import RunTarget, run_experiment

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def on(owner, name, is_time, *, first=lambda *_: None):
    real, calls = getattr(owner, name), []
    def watched(*args, **options):
        calls.append(args)
        if is_time(len(calls), *args):
            first(*args)
            kill()
        return real(*args, **options)
    setattr(owner, name, watched)

def half_a_line(folder, line):
    with (folder.path / "metrics.jsonl").open("ab") as file:
        file.write(f'{{"round": {line["round"]}, "accu'.encode())

MOMENTS = {
    "claiming": lambda: on(Path, "replace", lambda n, path, target: target.name == "config.toml"),
    "round-0": lambda: on(ClientHost, "answer", lambda n, *_: n == 2),
    "round-0-measured": lambda: on(RunFolder, "write_checkpoint", lambda n, folder, t, content: t == 0),
    "round-1": lambda: on(ClientHost, "answer", lambda n, *_: n == 5),
    "half-a-line": lambda: on(RunFolder, "append_metrics", lambda n, folder, line: line["round"] == 2,
                              first=half_a_line),
    "line-without-checkpoint": lambda: on(RunFolder, "write_checkpoint", lambda n, folder, t, content: t == 2),
    "checkpoint-half-written": lambda: on(Path, "replace", lambda n, path, target: "point-000002" in target.name),
    "two-checkpoints": lambda: on(Path, "unlink", lambda n, path, **_: path.name.startswith("checkpoint-000001")),
    "all-but-the-result": lambda: on(RunFolder, "write", lambda n, folder, name, content: name == "result.json"),
}

recipe, root = sys.argv[1:]
for moment, arrange in MOMENTS.items():
    child = os.fork()
    if child == 0:
        try:
            arrange()
            run_experiment(resolve(recipe), RunTarget(Path(root) / moment))
        finally:
            os._exit(7)  # nobody killed it
    print(moment, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
MOMENTS = (
    "claiming",
    "round-0",
    "round-0-measured",
    "round-1",
    "half-a-line",
    "line-without-checkpoint",
    "checkpoint-half-written",
    "two-checkpoints",
    "all-but-the-result",
)
TINY = {
    "rounds": 2,
    "data": {"n_train": 60, "n_test": 20, "n_clients": 3},
    "method": {"name": "fedsir", "identify": {"epochs": 1}, "relabel": {"every": 1}},
}


def kill_at_every_moment(root: Path, config: RunConfig) -> None:
    (root / "tiny.toml").write_text(config.to_toml())
    words = [sys.executable, "-c", DRIVER, str(root / "tiny.toml"), str(root)]
    # One thread for linear algebra: after a fork a second one only waits for itself.
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=env)
    assert done.stdout.splitlines() == [f"{moment} -9" for moment in MOMENTS], done.stderr


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def lines(folder: Path) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if "seconds" not in key} for line in read]


def test_a_run_killed_anywhere_goes_on_to_the_same_model(tmp_path: Path) -> None:
    # One test, not one per moment: loading torch for each would take longer than all the runs.
    config = resolve("digits", TINY)
    kill_at_every_moment(tmp_path, config)

    # The moments are where they claim to be.
    assert names(tmp_path / "claiming") == {".lock", ".config.toml.part"}
    assert "data.json" in names(tmp_path / "round-0") and "metrics.jsonl" not in names(tmp_path / "round-0")
    assert (tmp_path / "round-0-measured" / "metrics.jsonl").read_text().count("\n") == 1
    assert (tmp_path / "half-a-line" / "metrics.jsonl").read_text().endswith('{"round": 2, "accu')
    assert (tmp_path / "line-without-checkpoint" / "metrics.jsonl").read_text().count("\n") == 3
    assert any(name.endswith(".part") for name in names(tmp_path / "checkpoint-half-written"))
    assert len(list((tmp_path / "two-checkpoints").glob("checkpoint-*"))) == 2
    assert {"model.safetensors", "labels.npz"} <= names(tmp_path / "all-but-the-result")

    straight = run_experiment(config, RunTarget(tmp_path / "straight"))
    same = set(straight) - {"seconds", "run_dir"}
    for moment in MOMENTS:
        out = tmp_path / moment
        assert "result.json" not in names(out), moment
        for path in out.glob("checkpoint-*"):  # whatever bears a checkpoint's name is whole
            assert hashlib.sha256(path.read_bytes()).hexdigest()[:16] in path.name, moment
        result = run_experiment(config, RunTarget(out))
        assert {key: result[key] for key in same} == {key: straight[key] for key in same}, moment
        assert lines(out) == lines(tmp_path / "straight"), moment
        # Checkpoints hold the time a run took, so their names differ.
        kept = {name for name in names(out) if not name.startswith("checkpoint-")}
        assert kept == {name for name in names(tmp_path / "straight") if not name.startswith("checkpoint-")}, moment
        assert len(list(out.glob("checkpoint-*"))) == 1, moment
