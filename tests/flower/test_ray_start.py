"""Ray that does not come up at once."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs fedsir[flower]")
import ray
from ray._private.node import Node

from fedsir.engines.flower.ray_simulation import TRIES, SimulationEngine
from fedsir.engines.flower.roster import GridError

SLOW = "The current node timed out during startup. This could happen because the GCS has become overloaded."


class HalfStarted(Node):
    """A node of Ray's that notes that its processes were ended."""

    ended = 0

    def __init__(self, words: str) -> None:
        raise RuntimeError(words)

    def kill_all_processes(self, *_: Any, **__: Any) -> None:
        HalfStarted.ended += 1


def start(monkeypatch: pytest.MonkeyPatch, folder: Path, *faults: str) -> int:
    """Start Ray when its first tries fail in these ways; return how many tries there were."""
    tries = iter(faults)
    tried = []

    def init(**_: Any) -> None:
        tried.append(1)
        if (words := next(tries, None)) is not None:
            HalfStarted(words)

    HalfStarted.ended = 0
    monkeypatch.setattr(ray, "init", init)
    engine = SimulationEngine.__new__(SimulationEngine)
    engine._folder = folder
    engine._start_ray(1)
    return len(tried)


def test_a_busy_machine_gets_another_try(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert start(monkeypatch, tmp_path, SLOW, SLOW) == 3
    assert HalfStarted.ended == 2


def test_not_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(GridError, match=r"Ray cannot start: .*timed out"):
        start(monkeypatch, tmp_path, *[SLOW] * TRIES)
    assert HalfStarted.ended == TRIES


def test_what_another_try_does_not_mend_is_said_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(GridError, match=r"Ray cannot start: .*no space left"):
        start(monkeypatch, tmp_path, "no space left")
    assert HalfStarted.ended == 1
