"""Runs: what a folder holds in the end, and how a run goes on, or does not, after a stop or damage."""

import json
import shutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from fedsir.errors import ConfigError, MethodError, RunFolderError
from fedsir.methods.registry import known_methods
from fedsir.models.weights import weights_sha256
from fedsir.runs.config import RunConfig
from fedsir.runs.progress import Silent
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, default_out, run_experiment

Settings = Callable[..., RunConfig]
Contents = Callable[[Path], dict[str, bytes]]
# fmt: off
RESULT = {
    "method", "accuracy", "best_accuracy", "rounds", "clean_clients", "noisy_clients", "not_assessed", "two_groups",
    "identification_accuracy", "noise_before", "noise_after", "model_sha256", "bytes_up", "bytes_down", "seconds",
    "run_dir",
}
# fmt: on
FEDSIR = {"name": "fedsir", "identify": {"epochs": 1}, "relabel": {"every": 1}}


class Stop(Exception):
    """Stands for whatever ends a process."""


class StopAfter(Silent):
    """Progress that ends the run after round t."""

    def __init__(self, t: int) -> None:
        self.t = t

    def round_done(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] == self.t:
            raise Stop


class Recorder(Silent):
    """Progress that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def started(self, config: RunConfig, data: Any, earlier: list[dict[str, Any]]) -> None:
        self.told.append([line["round"] for line in earlier])

    def round_done(self, metrics: dict[str, Any]) -> None:
        self.told.append(metrics["round"])

    def finished(self, result: Mapping[str, Any], *, is_new: bool) -> None:
        self.told.append("finished" if is_new else "finished earlier")


def stopped(config: RunConfig, out: Path, t: int) -> None:
    with pytest.raises(Stop):
        run_experiment(config, RunTarget(out, progress=StopAfter(t)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunConfig, Path, dict[str, Any]]:
    """One finished FedSIR run, for tests that copy it."""
    data = {"n_train": 60, "n_test": 20, "n_clients": 3}
    config = resolve("digits", {"rounds": 2, "method": FEDSIR, "data": data})
    out = tmp_path_factory.mktemp("finished") / "run"
    return config, out, run_experiment(config, RunTarget(out))


# ---------------------------------------------------------------- a finished run


def test_a_run_leaves_everything_it_promises(finished: tuple[RunConfig, Path, dict[str, Any]]) -> None:
    config, out, result = finished
    assert set(result) >= RESULT
    assert json.loads((out / "result.json").read_text()) == result
    assert tomllib.loads((out / "config.toml").read_text()) == config.tree()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2]
    assert result["bytes_up"] == sum(line["bytes_up"] for line in lines) > 0
    assert result["bytes_down"] == sum(line["bytes_down"] for line in lines) > 0
    assert lines[-1]["accuracy"] == result["accuracy"]
    assert lines[-1]["noise_after"] == result["noise_after"]
    model = safetensors.torch.load_file(out / "model.safetensors")
    assert weights_sha256(model) == result["model_sha256"]
    with np.load(out / "labels.npz", allow_pickle=False) as labels:
        per_sample = dict.fromkeys(("given", "corrected", "client", "source_index"), 60)
        assert {name: len(labels[name]) for name in labels.files} == per_sample | {"client_names": 3, "class_names": 10}
        assert labels["client_names"][labels["client"].max()] == "2"
    with np.load(out / "predictions.npz", allow_pickle=False) as predictions:
        assert (predictions["predicted"] == predictions["labels"]).mean() == pytest.approx(result["accuracy"])
    split = json.loads((out / "identification.json").read_text())["split"]
    assert (split["clean"], split["noisy"]) == (result["clean_clients"], result["noisy_clients"])
    assert {path.name for path in out.iterdir() if path.name.startswith(".")} <= {".lock"}


def test_a_finished_run_is_reported_and_not_run_again(
    finished: tuple[RunConfig, Path, dict[str, Any]], contents: Contents
) -> None:
    config, out, result = finished
    before = contents(out)
    recorder = Recorder()
    assert run_experiment(config, RunTarget(out, workers=3, progress=recorder)) == result
    assert recorder.told == ["finished earlier"]
    assert contents(out) == before


def test_a_finished_run_without_its_model_is_not_reported(
    finished: tuple[RunConfig, Path, dict[str, Any]], tmp_path: Path
) -> None:
    config, out, _ = finished
    path = shutil.copytree(out, tmp_path / "run") / "model.safetensors"
    for content in (path.read_bytes()[:-1], safetensors.torch.save({"another": torch.zeros(1)})):
        path.write_bytes(content)
        with pytest.raises(RunFolderError, match=r"model\.safetensors is damaged: restore it"):
            run_experiment(config, RunTarget(path.parent))
    path.unlink()
    with pytest.raises(RunFolderError, match=r"model\.safetensors is missing: restore it, or"):
        run_experiment(config, RunTarget(path.parent))


def test_a_damaged_result_can_be_made_again(finished: tuple[RunConfig, Path, dict[str, Any]], tmp_path: Path) -> None:
    config, out, result = finished
    shutil.copytree(out, tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text("{")
    with pytest.raises(RunFolderError, match=r"result\.json is damaged: remove it"):
        run_experiment(config, RunTarget(tmp_path / "run"))
    (tmp_path / "run" / "result.json").unlink()
    again = run_experiment(config, RunTarget(tmp_path / "run"))
    assert again["model_sha256"] == result["model_sha256"]
    assert again["bytes_up"] == result["bytes_up"]


# ---------------------------------------------------------------- going on


@pytest.mark.parametrize("method", sorted(known_methods()))
def test_a_run_stopped_after_every_round_ends_in_the_same_model(
    method: str, tmp_path: Path, tiny: Settings, finished: tuple[RunConfig, Path, dict[str, Any]]
) -> None:
    if method == "fedsir":
        config, _, straight = finished
    else:
        config = tiny(method={"name": method})
        straight = run_experiment(config, RunTarget(tmp_path / "straight"))
    for t in range(config.rounds + 1):
        stopped(config, tmp_path / "run", t)
    recorder = Recorder()
    result = run_experiment(config, RunTarget(tmp_path / "run", progress=recorder))
    assert recorder.told == [[0, 1, 2], "finished"]
    same = set(result) - {"seconds", "run_dir"}
    assert {key: result[key] for key in same} == {key: straight[key] for key in same}


def test_seconds_add_up_over_attempts(tmp_path: Path, tiny: Settings) -> None:
    stopped(tiny(), tmp_path / "run", 1)
    [first] = (tmp_path / "run").glob("checkpoint-*")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    result = run_experiment(tiny(), RunTarget(tmp_path / "run"))
    assert result["seconds"] > sum(line["seconds"] for line in lines)
    assert not first.exists()


# ---------------------------------------------------------------- not going on


def test_a_damaged_checkpoint_stops_the_run_and_changes_nothing(
    tmp_path: Path, tiny: Settings, contents: Contents
) -> None:
    out = tmp_path / "run"
    stopped(tiny(), out, 1)
    [path] = out.glob("checkpoint-*")
    path.write_bytes(path.read_bytes()[:-1])
    before = contents(out)
    with pytest.raises(RunFolderError, match=f"{path.name} is damaged"):
        run_experiment(tiny(), RunTarget(out))
    after = contents(out)
    assert after.pop("provenance.json") and before.pop("provenance.json")
    assert after == before


def test_a_checkpoint_of_another_run_is_refused_though_whole(tmp_path: Path, tiny: Settings) -> None:
    out, other = tmp_path / "run", tmp_path / "other"
    stopped(tiny(seed=1), out, 1)
    stopped(tiny(seed=2), other, 1)
    [mine], [foreign] = out.glob("checkpoint-*"), other.glob("checkpoint-*")
    mine.unlink()
    shutil.copy(foreign, out)
    with pytest.raises(RunFolderError, match=r"run: the checkpoint belongs to another run"):
        run_experiment(tiny(seed=1), RunTarget(out))


def own_data(path: Path, seed: int) -> RunConfig:
    rng = np.random.default_rng(seed)
    labels = np.arange(60) % 2
    np.savez(path, images=rng.integers(0, 256, (60, 8, 8), dtype=np.uint8), labels=labels, clients=labels[::-1])
    return resolve(None, {"rounds": 2, "method": {"name": "fedavg"}, "data": {"dataset": str(path)}})


def test_data_that_changed_since_stop_the_run(tmp_path: Path) -> None:
    config = own_data(tmp_path / "own.npz", seed=1)
    stopped(config, tmp_path / "run", 1)
    own_data(tmp_path / "own.npz", seed=2)
    with pytest.raises(RunFolderError, match=r"data have changed since this run began in .*run"):
        run_experiment(config, RunTarget(tmp_path / "run"))
    own_data(tmp_path / "own.npz", seed=1)
    assert run_experiment(config, RunTarget(tmp_path / "run"))["rounds"] == 2


def test_settings_that_fail_on_the_data_do_not_claim_the_folder(tmp_path: Path, tiny: Settings) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match=r"data\.n_train"):
        run_experiment(tiny(data={"n_train": 5000}), RunTarget(out))
    assert run_experiment(tiny(), RunTarget(out))["rounds"] == 2


def test_training_that_diverges_says_so_and_keeps_the_rounds_before(tmp_path: Path, tiny: Settings) -> None:
    out = tmp_path / "run"
    with pytest.raises(MethodError, match=r"Round \d: all 3 clients failed; .*not finite\. .*lower method\.lr"):
        run_experiment(tiny(method={"lr": 1e30}, rounds=4), RunTarget(out))
    assert len(list(out.glob("checkpoint-*.safetensors"))) == 1
    assert not (out / "result.json").exists()


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "meta", "", "CPU"])
def test_a_device_that_is_not_here_is_refused_before_anything_is_written(
    tmp_path: Path, tiny: Settings, device: str
) -> None:
    with pytest.raises(ConfigError, match=f"device: there is no {device!r} on this machine; use cpu"):
        run_experiment(tiny(), RunTarget(tmp_path / "run", device=device))
    assert not (tmp_path / "run").exists()


def test_workers_below_one_are_refused(tmp_path: Path, tiny: Settings) -> None:
    with pytest.raises(ConfigError, match="workers"):
        run_experiment(tiny(), RunTarget(tmp_path / "run", workers=0))


# ---------------------------------------------------------------- names


def test_the_same_settings_have_the_same_folder(tiny: Settings) -> None:
    assert default_out(tiny()) == default_out(tiny())
    assert default_out(tiny()).parent == Path("runs")
    assert default_out(tiny(seed=1)) != default_out(tiny())
    assert default_out(tiny(method={"lr": 0.5})) != default_out(tiny())
    assert default_out(tiny()).name.startswith("digits-fedavg-a2-n0.8-s0-")


def test_a_path_gives_its_last_word_to_the_folder(tiny: Settings) -> None:
    assert default_out(tiny(data={"dataset": "/some where/own.npz"})).name.startswith("own-fedavg-")
