"""A run small enough for a unit test: 3 clients, 60 digits, fractions of a second."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsir.runs.config import RunConfig, merge
from fedsir.runs.recipes import resolve

TINY = {
    "rounds": 2,
    "method": {"name": "fedavg", "epochs": 1},
    "data": {"n_train": 60, "n_test": 20, "n_clients": 3},
}


@pytest.fixture
def tiny() -> Callable[..., RunConfig]:
    """Return a function from changes (a tree) to the settings of a tiny run."""

    def settings(**changes: Any) -> RunConfig:
        return resolve("digits", merge(TINY, changes))

    return settings


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Return a function from a folder to the bytes of every file in it."""

    def read(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    return read
