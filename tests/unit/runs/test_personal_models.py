"""Runs in which every client has a model of its own: what is scored, written, and found again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch

from fedsir.engines.federation import EngineFederation
from fedsir.models.weights import weights_sha256
from fedsir.runs.config import RunConfig
from fedsir.runs.runner import RunTarget, run_experiment

Settings = Callable[..., RunConfig]
RHFL = {"name": "rhfl", "pretrain_epochs": 1, "lr": 0.01}


@pytest.fixture
def personal(tiny: Settings) -> RunConfig:
    return tiny(method=RHFL, data={"n_train": 90}, rounds=1)


def test_predictions_scores_and_models_of_every_client(personal: RunConfig, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_experiment(personal, RunTarget(out))
    with np.load(out / "predictions.npz", allow_pickle=False) as file:
        predicted, labels = file["predicted"], file["labels"]
    assert predicted.shape == (3, 20)
    accuracies = (predicted == labels).mean(axis=1)
    assert len(set(accuracies.tolist())) > 1
    assert result["accuracy"] == pytest.approx(accuracies.mean())
    assert result["accuracy_spread"] == pytest.approx(accuracies.std())
    model = safetensors.torch.load_file(out / "model.safetensors")
    assert {name.partition("/")[0] for name in model} == {"0", "1", "2"}
    assert weights_sha256(model) == result["model_sha256"]
    assert not (model["0/head.weight"] == model["1/head.weight"]).all()
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["accuracy"] == result["accuracy"]


def test_the_file_holds_the_models_that_were_scored(
    personal: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored: list[str] = []
    original = EngineFederation.predict

    def noted(self: EngineFederation, model: Any, n_test: int) -> Any:
        scored.append(weights_sha256(model))
        return original(self, model, n_test)

    monkeypatch.setattr(EngineFederation, "predict", noted)
    run_experiment(personal, RunTarget(tmp_path / "run"))
    model = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    written = [
        weights_sha256({name.removeprefix(f"{k}/"): t for name, t in model.items() if name.startswith(f"{k}/")})
        for k in "012"
    ]
    assert len(scored) == 6  # two evaluations; the end of the run asks for nothing twice
    assert scored[-3:] == written


def test_a_client_that_never_took_part_has_the_common_model(tiny: Settings, tmp_path: Path) -> None:
    config = tiny(method=RHFL, data={"n_train": 90}, rounds=1, dropout=0.9, seed=3)
    run_experiment(config, RunTarget(tmp_path / "run"))
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    away = [k for k in "012" if all(k in line["failures"] for line in lines)]
    assert len(away) >= 2
    model = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert all((model[f"{away[0]}/{n}"] == model[f"{away[1]}/{n}"]).all() for n in ("head.weight", "body.0.weight"))


def test_one_model_has_no_spread(tiny: Settings, tmp_path: Path) -> None:
    assert run_experiment(tiny(rounds=1), RunTarget(tmp_path / "run"))["accuracy_spread"] is None
