"""Every method on an accelerator, as far as that can be tried without one: whole runs on a fake device."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fake_device import Event, FakeDevice
from fedsir.data.augment import _scale_and_shift
from fedsir.engines.client_host import Answer, AnyCall, ClientHost, PredictCall
from fedsir.experiment import devices
from fedsir.methods.registry import known_methods, method_class

Runner = Callable[..., Any]
Counts = frozenset[tuple[tuple[str, str, str], int]]
every_method = pytest.mark.parametrize("method", sorted(known_methods()))
# The two devices differ in what they compute with, not in what methods do: one method on both, all on one.
on_devices = pytest.mark.parametrize(
    ("method", "fake"),
    [
        pytest.param(method, device, marks=() if device == "cuda" or method == "fedsir" else pytest.mark.slow)
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


@every_method
@pytest.mark.parametrize("fake", ["cuda"], indirect=True)
def test_transfers_do_not_grow_with_the_steps(
    method: str, fake: FakeDevice, run_tiny: Runner, events_by_task: dict[tuple[int, str], list[list[Event]]]
) -> None:
    def transfers(batch_size: int) -> dict[tuple[int, str], set[Counts]]:
        _scale_and_shift.cache_clear()  # else the first of two runs alone sends these
        events_by_task.clear()
        run_tiny(method, device=fake.device.type, method={"batch_size": batch_size})
        # Sets, as clients may come to other roles with another batch size.
        return {key: {_counts(events) for events in calls} for key, calls in events_by_task.items()}

    assert transfers(64) == transfers(20)  # about forty samples each: 1 and 2 or 3 steps per epoch


def _counts(events: list[Event]) -> Counts:
    return frozenset(Counter((event.kind, event.operation, event.where) for event in events).items())
