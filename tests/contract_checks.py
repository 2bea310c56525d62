"""What the tests of the contract compare and check of a run."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsir.engines.base import Call
from fedsir.engines.client_host import ClientHost
from fedsir.methods.base import Client

# Late comers, rounds that change nothing, clients that come back: what a method remembers of them is in its state, too.
IN_PART: dict[str, Any] = {"rounds": 4, "participation": 0.6, "dropout": 0.2}


def essence(run: Any) -> dict[str, Any]:
    """Return all of a run that must not depend on when, where and in how many goes it was done."""
    timeless = [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in run.lines]
    result = {k: v for k, v in run.result.items() if k not in ("seconds", "run_dir")}
    with np.load(run.folder / "labels.npz") as labels:
        arrays = {name: (labels[name].dtype.str, labels[name].tobytes()) for name in labels.files}  # NaN is NaN there
    return {"result": result, "metrics": timeless, "labels": arrays}


def let_fail(monkeypatch: pytest.MonkeyPatch, is_doomed: Callable[[Call], bool]) -> None:
    """Let clients fail in these calls."""
    original = ClientHost.client

    def client_of(self: ClientHost, call: Call, state: bytes) -> Client:
        if is_doomed(call):
            raise MemoryError("no room")
        return original(self, call, state)

    monkeypatch.setattr(ClientHost, "client", client_of)


def check_finished(run: Any) -> None:
    """A run that came through has a usable model and strict JSON in its folder."""
    assert 0 <= run.result["accuracy"] <= 1
    assert run.lines[-1]["round"] == run.config.rounds
    texts = [path.read_text() for path in run.folder.glob("*.json")]
    for text in [*texts, *(run.folder / "metrics.jsonl").read_text().splitlines()]:
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def check_unharmed(run: Any) -> None:
    """It came through, and not because odd clients were left out: nobody failed, and everybody was asked once."""
    check_finished(run)
    assert [line["failures"] for line in run.lines] == [{}] * len(run.lines)
    heard = {client for line in run.lines for client in line["bytes_up_by_client"]}
    assert heard == set(json.loads((run.folder / "data.json").read_text())["client_sizes"])
