"""FedNoRo and FedELC on real digits: what only a run can show."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsir.engines.wire import decode
from fedsir.runs.run_folder import RunFolder

Runner = Callable[..., Any]
LARGER = {"n_train": 1000, "n_clients": 6, "noise_rate": 0.8, "noisy_clients": ["1", "3", "4"]}


@pytest.mark.parametrize("method", ["fednoro", "fedelc"])
def test_it_finds_the_noisy_clients(method: str, run_tiny: Runner) -> None:
    run = run_tiny(method, rounds=4, data=LARGER, method={"epochs": 2, "lr": 0.005, "identify": {"after": 2}})
    assert run.result["noisy_clients"] == ["1", "3", "4"]
    assert run.result["identification_accuracy"] == 1.0
    assert [line.get("assessed") for line in run.lines] == [None, None, None, 6, None]
    split = json.loads((run.folder / "identification.json").read_text())["split"]
    assert {client: len(losses) for client, losses in split["statistics"].items()} == dict.fromkeys("012345", 10)


def test_fedelc_touches_only_labels_of_clients_it_calls_noisy(run_tiny: Runner) -> None:
    run = run_tiny("fedelc", rounds=6, data=LARGER, method={"epochs": 3, "lr": 0.005, "identify": {"after": 2}})
    with np.load(run.folder / "labels.npz") as labels:
        changed = labels["given"] != labels["corrected"]
        assert set(labels["client"][changed].tolist()) <= {1, 3, 4}
    assert run.lines[-1]["relabelled"] == changed.sum() > 0
    assert run.result["noise_after"] < run.result["noise_before"]


def test_late_comers_are_assessed_and_then_nothing_more_is_kept(run_tiny: Runner) -> None:
    run = run_tiny("fedelc", rounds=8, participation=0.4, method={"identify": {"after": 1}})
    assessed = [line["assessed"] for line in run.lines if "assessed" in line]
    assert assessed == sorted(assessed) and assessed[0] == 2 and assessed[-1] == 5
    content = RunFolder(run.folder).read_checkpoint()
    state = decode(content)["state"]
    assert (state["split"]["not_assessed"], state["yardstick"]) == ({}, {})
