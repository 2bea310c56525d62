"""On Flower every method ends where it ends locally: same model, same metrics, same bytes counted, same labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="needs fedsir[flower]")

from contract_checks import IN_PART, essence
from fedsir.engines.choice import engine_opener
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.flower.client import client_app
from fedsir.engines.flower.grid import Link
from fedsir.engines.flower.roster import Roster
from fedsir.engines.flower.virtual import VirtualEngine, VirtualSites
from fedsir.methods.registry import known_methods
from fedsir.runs.progress import Silent
from loopback_grid import LoopbackGrid

Runner = Callable[..., Any]
QUICK = "fedsir"  # of the others the slow tests take care: Ray's processes take long to start


@pytest.fixture
def loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let runs that do not ask for the engine "really local" use Flower's messages and a grid without a network."""
    folders = iter(range(100))

    def open_engine(spec: HostSpec) -> VirtualEngine:
        clients, folder = tuple(spec.store.rows_by_client), tmp_path / f"sites-{next(folders)}"
        host = ClientHost(spec)
        app = client_app(spec.method.tasks(), VirtualSites(clients, folder, lambda: host))
        grid = LoopbackGrid(app, len(clients))
        return VirtualEngine(Link(grid, Roster(grid, 1.0), "run"), spec, folder)

    def opener(name: str, workers: int) -> Any:
        return engine_opener("local", workers) if name == "really local" else open_engine

    monkeypatch.setattr("fedsir.runs.runner.engine_opener", opener)


class Interrupted(Exception):
    """Stands for a kill of the server."""


class StopAfter(Silent):
    def __init__(self, t: int) -> None:
        self._t = t

    def round_done(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] == self._t:
            raise Interrupted


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("over", [{}, IN_PART], ids=["with all", "in part"])
def test_by_messages_is_as_local(
    method: str, over: dict[str, Any], run_tiny: Runner, straight_run: Runner, tmp_path: Path
) -> None:
    """Also in two goes: the second has other nodes, other versions, and what the checkpoint says."""
    with pytest.raises(Interrupted):
        run_tiny(method, out=tmp_path / "run", progress=StopAfter(1), **over)
    assert essence(run_tiny(method, out=tmp_path / "run", **over)) == essence(straight_run(method, **over))


@pytest.mark.usefixtures("loopback")
@pytest.mark.parametrize("engines", [("flower", "really local"), ("really local", "flower")])
def test_a_run_may_go_on_with_the_other_engine(
    engines: tuple[str, str], run_tiny: Runner, straight_run: Runner, tmp_path: Path
) -> None:
    for t, engine in enumerate(engines, 1):
        with pytest.raises(Interrupted):
            run_tiny("fedsir", out=tmp_path / "run", progress=StopAfter(t), engine=engine)
    assert essence(run_tiny("fedsir", out=tmp_path / "run")) == essence(straight_run("fedsir"))


@pytest.mark.flower
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == QUICK else pytest.mark.slow) for name in sorted(known_methods())]
)
def test_flowers_simulation_is_as_local(name: str, run_tiny: Runner, straight_run: Runner) -> None:
    assert essence(run_tiny(name, engine="flower", workers=2)) == essence(straight_run(name))
