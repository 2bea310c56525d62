"""Runs to make pages of, each made once."""

from pathlib import Path
from typing import Any

import pytest

import fedsir
from fedsir.runs.result import RunResult
from report_views import hostile_run

TINY: dict[str, Any] = {"data.n_train": 90, "data.n_test": 20, "data.n_clients": 3, "method.lr": 0.003}


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """FedSIR, three clients, three rounds, relabelling in each."""
    settings = TINY | {"method.identify.epochs": 1, "method.relabel.every": 1}
    return fedsir.run(method="fedsir", rounds=3, settings=settings, out=tmp_path_factory.mktemp("report") / "sir")


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """FedAvg on the same data."""
    return fedsir.run(method="fedavg", rounds=3, settings=TINY, out=tmp_path_factory.mktemp("report") / "avg")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose clients, classes, data and folder have names that want to be markup."""
    return hostile_run(tmp_path_factory.mktemp("hostile"))
