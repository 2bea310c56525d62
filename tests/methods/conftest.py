"""Tiny runs of any method."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fedsir.data.federation import FederatedData
from fedsir.data.source import Source
from fedsir.runs.config import RunConfig, merge, parse_config
from fedsir.runs.progress import Silent
from fedsir.runs.runner import RunTarget, run_experiment

# What makes a method's tiny run tiny and still meaningful; methods that are not named run with their defaults.
QUICK: dict[str, dict[str, Any]] = {
    "fedcorr": {"fine_tuning_rounds": 0},  # rounds in which noisy clients have nothing to do
    # Somebody is above the mean in round 1, and trains both of its models in round 2.
    "fedned": {"warm_up": 0, "threshold": 1.0, "confidence": 0.1, "distillation_steps": 2},
    "rhfl": {"pretrain_epochs": 1, "public_batch_size": 8},  # 25 held-out images are three batches
    "pruning": {"identify": {"epochs": 2, "lr": 3e-3, "min_class_samples": 2}},
    "fedsir": {
        "identify": {"epochs": 1, "lr": 1e-3, "min_class_samples": 2},
        "relabel": {"every": 1, "min_samples": 2},
    },
}


@dataclass(frozen=True)
class Run:
    """A finished run: its result, its folder, its lines of metrics.jsonl."""

    config: RunConfig
    result: dict[str, Any]
    folder: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]


def tiny_config(method: str, /, **over: Any) -> RunConfig:
    """Return settings of two rounds over five clients with forty digits each, three of them noisy.

    method : a name, or "NAME PRESET"
    """
    name, _, preset = method.partition(" ")
    tree = {
        "rounds": 2,
        "data": {
            "dataset": "digits",
            "n_train": 200,
            "n_test": 100,
            "n_clients": 5,
            "partition": "iid",
            "noise_rate": 0.8,
            "noisy_clients": ["1", "2", "4"],
        },
        "method": {"name": name, "batch_size": 16, "lr": 0.003, **QUICK.get(name, {})}
        | ({"preset": preset} if preset else {}),
    }
    return parse_config(merge(tree, over))


RunTiny = Callable[..., Run]
Deal = Callable[..., FederatedData]


@pytest.fixture(scope="session")
def deal(deal: Deal, digits: Source) -> Deal:
    """Return a function that deals digits by hand, and twenty others to everybody without their labels."""
    public = digits.images[digits.test_rows[100:120]]

    def with_public(*clients: Any) -> FederatedData:
        return replace(deal(*clients), public_images=public)

    return with_public


@pytest.fixture
def run_tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunTiny:
    """Return a function that runs a method; `federation` replaces the data that the settings describe."""
    folders = iter(range(1000))

    def run(
        name: str,
        /,
        *,
        federation: Any = None,
        workers: int = 1,
        device: str = "cpu",
        progress: Silent | None = None,
        out: Path | None = None,
        engine: str = "local",
        **over: Any,
    ) -> Run:
        config = tiny_config(name, **over)
        folder = out or tmp_path / f"run-{next(folders)}"
        with monkeypatch.context() as patch:
            if federation is not None:
                patch.setattr("fedsir.runs.runner.load_federation", lambda *_, **__: federation)
            where = RunTarget(folder, workers=workers, device=device, progress=progress or Silent(), engine=engine)
            return Run(config, run_experiment(config, where), folder)

    return run


@pytest.fixture(scope="session")
def straight_run(tmp_path_factory: pytest.TempPathFactory) -> RunTiny:
    """Return a function that gives a method's uninterrupted run in one process, run once for all tests."""
    done: dict[str, Run] = {}

    def run(method: str, /, **over: Any) -> Run:
        config = tiny_config(method, **over)
        if config.sha256 not in done:
            folder = tmp_path_factory.mktemp("straight") / method
            done[config.sha256] = Run(config, run_experiment(config, RunTarget(folder)), folder)
        return done[config.sha256]

    return run
