"""FedSIR on real digits: what only a run can show."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from contract_checks import let_fail
from fedsir.errors import MethodError
from fedsir.stages.split import ClientSplit

Runner = Callable[..., Any]


def force_split(monkeypatch: pytest.MonkeyPatch, clean: str, noisy: str) -> None:
    """Let Stage I end in this verdict."""
    split = ClientSplit(tuple(clean), tuple(noisy), {}, {}, {}, None, has_two_groups=True)
    monkeypatch.setattr("fedsir.methods.spectral_identification.split_clients", lambda *_, **__: split)


def test_the_round_goes_on_without_its_only_noisy_client(run_tiny: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    force_split(monkeypatch, "0123", "4")
    let_fail(monkeypatch, lambda call: (call.client, call.round) == ("4", 1))
    run = run_tiny("fedsir")
    assert run.lines[1]["failures"] == {"4": "MemoryError: no room"}
    assert set(run.lines[1]["shares"]) == {"0", "1", "2", "3"}


def test_the_round_stops_without_any_clean_client(run_tiny: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    force_split(monkeypatch, "0", "1234")
    let_fail(monkeypatch, lambda call: (call.client, call.round) == ("0", 1))
    with pytest.raises(MethodError, match="MemoryError: no room"):
        run_tiny("fedsir")


def test_it_finds_the_noisy_clients_and_repairs_labels(run_tiny: Runner) -> None:
    run = run_tiny(
        "fedsir",
        rounds=4,
        data={"n_train": 1000, "n_clients": 6, "noise_rate": 0.8, "noisy_clients": ["1", "3", "4"]},
        method={
            "epochs": 2,
            "lr": 0.005,
            "identify": {"epochs": 8, "lr": 0.003, "weight_decay": 0.0005, "min_class_samples": 10},
            "relabel": {"every": 1, "min_samples": 10},
        },
    )
    assert run.result["noisy_clients"] == ["1", "3", "4"]
    assert run.result["identification_accuracy"] == 1.0
    assert run.result["noise_before"] == pytest.approx(0.8, abs=0.02)
    assert run.result["noise_after"] < 0.4
    relabelled = [line["has_relabelled"] for line in run.lines[1:]]
    assert relabelled == [False, True, True, True]
    with np.load(run.folder / "labels.npz") as labels:
        changed = labels["given"] != labels["corrected"]
        assert set(labels["client"][changed].tolist()) == {1, 3, 4}  # clean clients' labels are never touched


def test_one_class_on_a_client_is_told_apart_from_noise(run_tiny: Runner, deal: Any, digits: Any) -> None:
    rows = {str(k): list(range(60 * k, 60 * k + 60)) for k in range(4)}
    rows["ones"] = np.flatnonzero(digits.train_labels == 1)[-20:].tolist()
    run = run_tiny("fedsir", federation=deal(rows))
    assert "ones" not in {*run.result["noisy_clients"], *run.result["clean_clients"]}
    assert list(run.result["not_assessed"]) == ["ones"]
    split = json.loads((run.folder / "identification.json").read_text())["split"]
    assert split["not_assessed"] == {"ones": "only 1 usable class(es); two are needed"}
    assert split["statistics"]["ones"] == [None, None]


def test_both_presets_run(run_tiny: Runner) -> None:
    authors = run_tiny("fedsir", method={"preset": "authors"})
    paper = run_tiny("fedsir", method={"preset": "paper"})
    assert authors.result["model_sha256"] != paper.result["model_sha256"]
    assert [line.get("has_relabelled") for line in authors.lines] == [None, False, True]
    assert [line.get("has_relabelled") for line in paper.lines] == [None, True, True]


@pytest.mark.parametrize("switch", ["relabel", "la", "kd", "daagg"])
def test_each_ablation_runs_and_matters(switch: str, run_tiny: Runner, straight_run: Runner) -> None:
    run = run_tiny("fedsir", method={switch: {"enabled": False}})
    assert run.result["model_sha256"] != straight_run("fedsir").result["model_sha256"]
    assert any(line["has_relabelled"] for line in run.lines[1:]) == (switch != "relabel")
    assert (run.lines[-1]["kd_weight"] > 0) == (switch != "kd")


def test_stage_one_without_training_sends_hardly_anything(run_tiny: Runner, straight_run: Runner) -> None:
    run = run_tiny("fedsir", method={"identify": {"epochs": 0}})
    n_model_bytes = (run.folder / "model.safetensors").stat().st_size
    assert max(run.lines[0]["bytes_up_by_client"].values()) < 1000
    assert min(straight_run("fedsir").lines[0]["bytes_up_by_client"].values()) > n_model_bytes
