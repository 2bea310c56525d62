"""What a plan promises: the same data as the run, and an estimate that scales as work does."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedsir.data.dealing import build_federation
from fedsir.data.federation import FederatedData
from fedsir.data.source import load_source
from fedsir.errors import DataError
from fedsir.runs import estimate
from fedsir.runs.config import RunConfig
from fedsir.runs.runner import RunTarget, run_experiment
from tiny_network import Tiny

Settings = Callable[..., RunConfig]


def expected(config: RunConfig, workers: int = 1) -> dict[str, Any]:
    source = load_source("digits", data_dir=Path("nowhere"), seed=0)
    data = build_federation(config.data, source, seed=config.seed)
    return estimate.estimate(config, data, Tiny(), workers)


def test_the_plan_is_the_data_of_the_run(tmp_path: Path, tiny: Settings) -> None:
    planned = estimate.plan_run(tiny(), workers=1)
    run_experiment(tiny(), RunTarget(tmp_path / "run"))
    found = planned.pop("estimate")
    assert found["seconds"] > 0 and found["images_per_second"] > 0
    assert found["model_bytes"] == 4 * 38_954 + 3 * 8  # each BatchNorm's counter takes 8
    assert json.loads((tmp_path / "run" / "data.json").read_text()) == planned


def test_time_grows_with_rounds_and_shrinks_with_workers(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time_training", lambda *_: (0.5, 0.0, 1000))
    # 60 images, 2 rounds of 1 epoch, half a second each; 20 test images, 3 times, a third of that each.
    assert expected(tiny())["seconds"] == pytest.approx(60 * 2 * 0.5 + 20 * 3 * 0.5 / 3)
    assert expected(tiny(), workers=2)["seconds"] == pytest.approx(expected(tiny())["seconds"] / 2)
    # Three clients keep three workers busy at most.
    assert expected(tiny(), workers=4)["seconds"] == pytest.approx(60 * 2 * 0.5 / 3 + 20 * 3 * 0.5 / 3 / 4)
    assert expected(tiny(rounds=4, evaluate_every=2))["seconds"] == pytest.approx(60 * 4 * 0.5 + 20 * 3 * 0.5 / 3)
    assert expected(tiny(participation=0.5))["seconds"] == pytest.approx(60 * 0.5 + 20 * 3 * 0.5 / 3)
    assert expected(tiny())["images_per_second"] == 2
    assert expected(tiny(), workers=4)["memory_bytes"] > expected(tiny())["memory_bytes"]


def test_each_call_of_a_client_costs(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time_training", lambda *_: (0.5, 7.0, 1000))
    # 2 rounds with 1 of 3 clients: a third of the images, and a call each.
    fedavg = expected(tiny(participation=0.3))
    assert fedavg["seconds"] == pytest.approx(60 * 2 * 0.3 * 0.5 + 2 * 7 + 20 * 3 * 0.5 / 3)


def test_memory_counts_the_maps_of_a_batch_for_every_worker(tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    few = expected(tiny(method={"batch_size": 2}))["memory_bytes"]
    monkeypatch.setattr(estimate, "kept_bytes", lambda *_: 10**9)
    large = [expected(tiny(method={"batch_size": 2}), workers)["memory_bytes"] for workers in (1, 2, 3)]
    assert large[0] - few == pytest.approx(estimate.STEP_SHARE * 2 * 10**9, rel=0.01)
    assert large[2] - large[1] == pytest.approx(estimate.STEP_SHARE * 2 * 10**9 + estimate.PROCESS, rel=0.01)


def test_kept_bytes_are_the_maps_that_the_backward_pass_reads(deal: Callable[..., FederatedData]) -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(8))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x * self.weight * self.weight).relu()  # x, x·w and the result, 8·8 floats each; w is no map

    assert estimate.kept_bytes(deal({"a": [0, 1]}), Doubled()) == 3 * 8 * 8 * 4


def test_memory_does_not_grow_without_end_with_the_participants(
    tiny: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(estimate, "_time_training", lambda *_: (0.5, 0.0, estimate.REPLIES_IN_MEMORY))
    one, three = (expected(tiny(participation=share))["memory_bytes"] for share in (0.3, 1.0))
    assert one == three


def test_a_plan_misses_weights_as_the_run_would(tiny: Settings) -> None:
    with pytest.raises(DataError, match=r"no weights at /.*nowhere\.pth"):
        estimate.plan_run(tiny(model={"weights": "nowhere.pth"}), workers=1)
