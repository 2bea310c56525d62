"""Fixtures for what runs on Flower; without it, all of it is skipped with a reason."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("flwr", reason="needs fedsir[flower]")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "engines"))  # the misbehaving methods are those of the local engine
sys.path.insert(0, str(ROOT / "examples"))
sys.path.insert(0, str(ROOT / "tests" / "unit" / "auditing"))  # a network for --features MODULE:CLASS

if TYPE_CHECKING:
    from five_on_a_grid import OnGrid
    from three_on_a_grid import Federation
    from watched_machine import Watched

    from fedsir.data.source import Source


@pytest.fixture
def on_grid(deal: Callable[..., Any], tmp_path: Path) -> "OnGrid":
    """Five clients with five digits each."""
    from five_on_a_grid import CLIENTS, OnGrid

    return OnGrid(deal({client: range(5 * k, 5 * k + 5) for k, client in enumerate(CLIENTS)}), tmp_path / "sites")


@pytest.fixture
def sites(tmp_path: Path, digits: "Source", monkeypatch: pytest.MonkeyPatch) -> "Federation":
    """Three real sites and a server, without waiting."""
    from three_on_a_grid import Federation

    from fedsir.deployment import server

    monkeypatch.setattr(server, "LOOK_EVERY", 0.01)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    return Federation(tmp_path / "federation", digits)


@pytest.fixture
def machine(tmp_path: Path) -> "Iterator[Watched]":
    """A machine on which nothing is left in the end."""
    from watched_machine import Watched

    with Watched(tmp_path / "m", quiet=True) as found:
        yield found
    ends = time.monotonic() + 60  # Flower's helpers look now and then whether their parent is still there
    while found.alive() and time.monotonic() < ends:
        time.sleep(0.2)
    assert found.alive() == {}, "a process is left"
