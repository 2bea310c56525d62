"""A run's images are in memory once, however many processes compute."""

import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsir.data.dealing import load_federation
from fedsir.data.federation import FederatedData
from fedsir.engines.client_store import ClientStore
from fedsir.runs.config import RunConfig
from fedsir.runs.progress import Silent
from fedsir.runs.runner import RunTarget, run_experiment

Settings = Callable[..., RunConfig]


def memory_of(images: Any) -> np.ndarray:
    """Return the array that owns the memory of a view."""
    while isinstance(images.base, np.ndarray):
        images = images.base
    assert isinstance(images, np.ndarray)
    return images


@pytest.mark.skipif(sys.platform == "win32", reason="each worker has a copy there")
def test_a_run_with_workers_keeps_one_copy(tmp_path: Path, tiny: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[weakref.ref[np.ndarray]] = []

    def load(*args: Any, **more: Any) -> FederatedData:
        data = load_federation(*args, **more)
        read.append(weakref.ref(memory_of(data.images)))
        return data

    class Seen(Exception):
        pass

    class Look(Silent):
        def started(self, config: RunConfig, data: FederatedData, earlier: list[dict[str, Any]]) -> None:
            assert read[0]() is None, "the copy that was read is still there"
            assert ClientStore.of(data).shared().images is data.images, "workers would get another copy"
            raise Seen

    monkeypatch.setattr("fedsir.runs.runner.load_federation", load)
    with pytest.raises(Seen):
        run_experiment(tiny(), RunTarget(tmp_path / "run", workers=2, progress=Look()))
