"""Every method on an accelerator, as far as that can be tried without one: whole runs on a fake device."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fake_device import Event, FakeDevice
from fedsir.engines.client_host import Answer, AnyCall, ClientHost, PredictCall
from fedsir.methods.registry import known_methods, method_class
from fedsir.runs import devices

Runner = Callable[..., Any]
# FedSIR on both by default; the others, which share its training loop, by `make test-all`.
on_devices = pytest.mark.parametrize(
    ("method", "fake"),
    [
        pytest.param(method, device, marks=() if method == "fedsir" else pytest.mark.slow)
        for method in sorted(known_methods())
        for device in ("cuda", "mps")
    ],
    indirect=["fake"],
)


@pytest.fixture
def fake(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDevice]:
    monkeypatch.setattr(devices, "available_devices", lambda: ["cpu", request.param])
    with FakeDevice(request.param) as device:
        yield device


@pytest.fixture
def events_by_task(fake: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> dict[tuple[int, str], list[list[Event]]]:
    """Return a mapping that fills with what crossed over in each task, by (round, task)."""
    seen: dict[tuple[int, str], list[list[Event]]] = {}
    original = ClientHost.answer

    def noted(self: ClientHost, call: AnyCall, common: bytes) -> Answer:
        before = len(fake.events)
        answer = original(self, call, common)
        key = (-1, "predict") if isinstance(call, PredictCall) else (call.round, call.task)
        seen.setdefault(key, []).append(fake.events[before:])
        return answer

    monkeypatch.setattr(ClientHost, "answer", noted)
    return seen


def everything(run: Any) -> dict[str, Any]:
    """Return all of a run that does not tell when and where it was done."""
    timeless = [{k: v for k, v in line.items() if not k.startswith("seconds")} for line in run.lines]
    arrays = {}
    for file in ("labels.npz", "predictions.npz"):
        with np.load(run.folder / file) as stored:
            arrays |= {f"{file}: {name}": stored[name].tolist() for name in stored.files}
    result = {k: v for k, v in run.result.items() if k not in ("seconds", "run_dir")}
    return {"result": result, "metrics": timeless, "model": (run.folder / "model.safetensors").read_bytes(), **arrays}


@on_devices
def test_a_whole_run_is_that_of_the_cpu(
    method: str,
    fake: FakeDevice,
    run_tiny: Runner,
    straight_run: Runner,
    events_by_task: dict[tuple[int, str], list[list[Event]]],
) -> None:
    run = run_tiny(method, device=fake.device.type)
    ran = {task for _, task in events_by_task}
    known = {*method_class(method).tasks(), *method_class(method).server_tasks()}
    assert ran == {"predict", *known}, "let the tiny run (QUICK in conftest.py) reach all tasks"
    assert all(events for calls in events_by_task.values() for events in calls)  # all of them used the device
    assert all(line["failures"] == {} for line in run.lines)
    assert everything(run) == everything(straight_run(method))
