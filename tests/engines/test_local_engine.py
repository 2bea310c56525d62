"""In this process or in worker processes: the same answers, and crashes that stay with their client."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fedsir.data.federation import FederatedData
from fedsir.engines.wire import encode
from fedsir.errors import MethodError
from fedsir.methods.registry import known_methods
from fedsir.models.small_cnn import SmallCNN
from fedsir.models.weights import load_weights

Opened = Callable[..., tuple[Any, Any, Any]]
CLIENTS = ("a", "b", "c", "d", "e")


def as_bytes(replies: Mapping[str, Mapping[str, Any]]) -> bytes:
    return encode({client: dict(reply) for client, reply in replies.items()})


@pytest.fixture
def counter(tmp_path: Path) -> str:
    """Return an empty folder in which crashes are counted."""
    folder = tmp_path / "crashes"
    folder.mkdir()
    return str(folder)


@pytest.mark.usefixtures("plugin")
def test_an_installed_method_is_found_by_name() -> None:
    assert known_methods()["misbehaving"] == "misbehaving_methods:Misbehaving"


@pytest.mark.usefixtures("plugin")
def test_workers_answer_as_this_process_does(opened: Opened, five_clients: FederatedData) -> None:
    answers = []
    for n_workers in (1, 2):
        fed, *_ = opened(n_workers)
        payload: dict[str, Any] = {"model": {"w": torch.arange(3.0)}, "n": 4, "nothing": None}
        first = fed.ask("describe", CLIENTS, **payload)
        fed.begin_round(2)
        second = fed.ask("describe", ["e", "a", "c"], each={"c": {"own": [1.5]}}, **payload)
        answers.append(
            (as_bytes(first), as_bytes(second), dict(fed.client_states), fed.log.bytes_up, fed.log.bytes_down)
        )
    assert answers[0] == answers[1]
    assert {k: reply["threads"] for k, reply in first.items()} == dict.fromkeys(CLIENTS, 1)
    for client, reply in first.items():
        assert reply["labels"].tolist() == five_clients.given_labels[five_clients.rows(client)].tolist()
        assert reply["pixels"] == five_clients.images[five_clients.image_rows[five_clients.rows(client)]].sum()
    assert list(second) == ["a", "c", "e"]
    assert second["c"]["payload"]["own"] == [1.5]
    assert "own" not in second["a"]["payload"]
    assert [int(reply["visits"]) for reply in second.values()] == [2, 2, 2]


@pytest.mark.usefixtures("plugin")
def test_randomness_differs_by_client_and_round(opened: Opened) -> None:
    fed, *_ = opened(1)
    draws = {k: tuple(reply["draw"].tolist()) for k, reply in fed.ask("describe", CLIENTS).items()}
    again = {k: tuple(reply["draw"].tolist()) for k, reply in fed.ask("describe", CLIENTS).items()}
    fed.begin_round(2)
    later = {k: tuple(reply["draw"].tolist()) for k, reply in fed.ask("describe", CLIENTS).items()}
    assert draws == again
    assert len({*draws.values(), *later.values()}) == 10


def test_training_is_the_same_in_workers(opened: Opened) -> None:
    answers = []
    for n_workers in (1, 2):
        fed, _, model = opened(n_workers, method="fedavg")
        answers.append(as_bytes(fed.ask("train", CLIENTS, model=model)))
        assert fed.failures == {}
    assert answers[0] == answers[1]


def test_predictions_are_the_same_in_workers_and_cost_no_traffic(
    opened: Opened, five_clients: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsir.engines.federation.TEST_SLICE", 33)  # so that a hundred images are four calls
    predicted = []
    for n_workers in (1, 2):
        fed, _, model = opened(n_workers, method="fedavg")
        predicted.append(fed.predict(model, len(five_clients.test_labels)).tolist())
        assert (fed.log.bytes_down, fed.log.bytes_up) == ({}, {})
    assert predicted[0] == predicted[1]
    assert len(predicted[0]) == 100
    module = SmallCNN(n_classes=10, in_channels=1)
    load_weights(module, model)
    with torch.no_grad():
        images = torch.from_numpy(five_clients.images[five_clients.test_rows])
        logits = module.eval()(five_clients.preprocessing.normalise(images))
    assert predicted[0] == logits.argmax(dim=1).tolist()


# ---------------------------------------------------------------- public images, and the server's own work


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("n_workers", [1, 2])
def test_clients_and_server_see_the_public_images(n_workers: int, opened: Opened, five_clients: FederatedData) -> None:
    fed, _, model = opened(n_workers)
    pixels = int(five_clients.images[-7:].sum())
    assert {reply["public"] for reply in fed.ask("describe", CLIENTS).values()} == {pixels}
    (found,) = fed.compute("look_at_public", model=model).values()
    assert found["pixels"] == pixels
    assert found["form"] == repr(five_clients.preprocessing)
    assert found["n_weights"] == sum(tensor.numel() for tensor in model.values())


@pytest.mark.usefixtures("plugin")
def test_server_work_is_the_same_in_workers_and_costs_no_traffic(opened: Opened) -> None:
    found = []
    for n_workers in (1, 2):
        fed, _, model = opened(n_workers)
        each = {k: {"own": torch.full((2,), float(i))} for i, k in enumerate("zyx")}
        replies = fed.compute("look_at_public", each=each, model=model, n=3)
        pids = {reply.pop("pid") for reply in replies.values()}
        assert (os.getpid() in pids) == (n_workers == 1)
        assert list(replies) == ["z", "y", "x"]  # as asked for
        found.append(as_bytes(replies))
        assert (fed.log.bytes_down, fed.log.bytes_up, fed.client_states, fed.log.seconds) == ({}, {}, {}, {})
    assert found[0] == found[1]
    assert {k: reply["payload"]["own"].tolist() for k, reply in replies.items()} == {
        "z": [0, 0],
        "y": [1, 1],
        "x": [2, 2],
    }
    assert all(reply["payload"]["n"] == 3 for reply in replies.values())
    assert fed.compute("look_at_public", each={}, model=model) == {}


@pytest.mark.usefixtures("plugin")
def test_the_servers_draws_differ_by_key_and_round(opened: Opened) -> None:
    fed, _, model = opened(1)

    def draws() -> set[tuple[float, ...]]:
        replies = fed.compute("look_at_public", each={"a": {}, "b": {}}, model=model)
        return {tuple(reply["draw"].tolist()) for reply in replies.values()}

    first, again = draws(), draws()
    fed.begin_round(2)
    assert first == again
    assert len(first | draws()) == 4


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("n_workers", [1, 2])
def test_server_work_that_fails_stops_the_run_with_its_reason(n_workers: int, opened: Opened) -> None:
    fed, *_ = opened(n_workers)
    with pytest.raises(MethodError) as problem:
        fed.compute("break_down", each={"a": {"me": "a"}, "b": {"me": "b"}}, victim="b")
    assert str(problem.value) == "Round 1: the server's task 'break_down' failed: ValueError: out of paper."
    assert fed.compute("break_down", each={"a": {"me": "a"}}, victim="b") == {"a": {}}  # the engine goes on


@pytest.mark.usefixtures("plugin")
def test_two_workers_share_the_work(opened: Opened) -> None:
    fed, *_ = opened(2)
    pids = {reply["pid"] for _ in range(5) for reply in fed.ask("process", CLIENTS).values()}
    assert len(pids) == 2
    assert os.getpid() not in pids
    here, *_ = opened(1)
    assert {reply["pid"] for reply in here.ask("process", CLIENTS).values()} == {os.getpid()}


@pytest.mark.usefixtures("plugin")
def test_a_killed_worker_is_replaced_and_its_client_tried_again(opened: Opened, counter: str) -> None:
    fed, *_ = opened(2)
    before = {reply["pid"] for _ in range(5) for reply in fed.ask("process", CLIENTS).values()}
    replies = fed.ask("crash", CLIENTS, victim="b", folder=counter, times=1)
    assert list(replies) == list(CLIENTS)
    assert fed.failures == {}
    assert replies["b"]["seen"] == 1
    after = {reply["pid"] for _ in range(5) for reply in fed.ask("process", CLIENTS).values()}
    assert len(after) == 2
    assert len(after & before) == 1


@pytest.mark.usefixtures("plugin")
def test_a_client_that_kills_its_worker_twice_is_left_out(opened: Opened, counter: str) -> None:
    fed, *_ = opened(2)
    replies = fed.ask("crash", CLIENTS, victim="d", folder=counter, times=99)
    assert list(replies) == ["a", "b", "c", "e"]
    assert fed.failures["d"].startswith("its worker process died twice")
    assert len(list(Path(counter).iterdir())) == 2
    assert list(fed.ask("describe", CLIENTS)) == list(CLIENTS)  # and the engine still works


@pytest.mark.usefixtures("plugin")
def test_a_worker_that_dies_between_two_tasks_is_replaced(opened: Opened) -> None:
    fed, *_ = opened(2)
    victim = fed.ask("process", ["a"])["a"]["pid"]
    os.kill(victim, signal.SIGKILL)
    time.sleep(0.2)
    replies = fed.ask("process", CLIENTS, each={"a": {}})
    assert list(replies) == list(CLIENTS)
    assert victim not in {reply["pid"] for reply in replies.values()}


@pytest.mark.usefixtures("plugin")
def test_closing_ends_the_workers(opened: Opened) -> None:
    fed, engine, _ = opened(2)
    pids = {reply["pid"] for _ in range(5) for reply in fed.ask("process", CLIENTS).values()}
    engine.close()
    deadline = time.monotonic() + 5
    while pids and time.monotonic() < deadline:
        pids = {pid for pid in pids if Path(f"/proc/{pid}").exists()} if Path("/proc").exists() else set()
    assert not pids


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize("n_workers", [1, 2])
def test_an_exception_stays_with_its_client(opened: Opened, n_workers: int) -> None:
    fed, *_ = opened(n_workers)
    assert list(fed.ask("fail", CLIENTS, victim="c")) == ["a", "b", "d", "e"]
    assert fed.failures == {"c": "ValueError: the disk is full"}  # one line, whatever the exception says
    assert set(fed.client_states) == {"a", "b", "d", "e"}  # a half-done task leaves no state


@pytest.mark.usefixtures("plugin")
def test_a_reply_that_cannot_travel_and_a_task_that_does_not_exist(opened: Opened) -> None:
    fed, *_ = opened(1)
    assert not fed.ask("send_object", CLIENTS)
    with pytest.raises(MethodError, match="thing: a object cannot travel"):
        fed.end_round()
    assert not fed.ask("round", CLIENTS)  # part of the server half: no task for clients
    with pytest.raises(MethodError, match="KeyError: 'round'"):
        fed.end_round()


class ForEightByEight(nn.Module):
    """A model that fits images of one size only."""

    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__()
        self.body = nn.Linear(64 * in_channels, 12)
        self.head = nn.Linear(12, n_classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x.flatten(1)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits


def test_a_model_for_one_image_size_trains_on_clients(opened: Opened) -> None:
    fed, _, model = opened(1, method="fedavg", model=f"{__name__}:ForEightByEight")
    assert list(fed.ask("train", CLIENTS, model=model)) == list(CLIENTS)
