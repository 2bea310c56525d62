"""In this process or in worker processes: the same answers, and crashes that stay with their client."""

import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from misbehaving_methods import Misbehaving, View

from fedsir.data.federation import FederatedData
from fedsir.engines.wire import encode
from fedsir.errors import ConfigError, MethodError
from fedsir.methods.base import Federation, Method, ServerState
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.replies import Reply
from fedsir.methods.reply_check import to_tree
from fedsir.methods.settings import MethodConfig
from fedsir.models.weights import load_weights
from tiny_network import Tiny

Opened = Callable[..., tuple[Any, Any, Any]]
CLIENTS = ("a", "b", "c", "d", "e")
TASKS = Misbehaving()
both_engines = pytest.mark.parametrize("n_workers", [1, 2])


def as_bytes(replies: Mapping[str, Reply]) -> bytes:
    return encode({client: to_tree(reply) for client, reply in replies.items()})


def processes(fed: Any) -> set[int]:
    """Return the processes that work; several rounds of work, so that each gets some."""
    return {reply.pid for _ in range(5) for reply in fed.ask(TASKS.process, CLIENTS).values()}


@pytest.fixture
def counter(tmp_path: Path) -> str:
    """Return an empty folder in which crashes are counted."""
    folder = tmp_path / "crashes"
    folder.mkdir()
    return str(folder)


# ---------------------------------------------------------------- the same answers


def test_workers_answer_as_this_process_does(opened: Opened, five_clients: FederatedData) -> None:
    answers = []
    for n_workers in (1, 2):
        fed, engine, _ = opened(n_workers)
        payload: dict[str, Any] = {"model": {"w": torch.arange(3.0)}, "n": 4, "nothing": None}
        first = fed.ask(TASKS.describe, CLIENTS, **payload)
        fed.begin_round(2)
        second = fed.ask(TASKS.describe, ["e", "a", "c"], each={"c": {"own": [1.5]}}, **payload)
        sizes = (fed.log.bytes_up, fed.log.bytes_down)
        answers.append((as_bytes(first), as_bytes(second), engine.client_states(), *sizes))
    assert answers[0] == answers[1]
    for client, reply in first.items():
        rows = five_clients.rows(client)
        assert reply.threads == 1
        assert reply.labels.tolist() == five_clients.given_labels[rows].tolist()
        assert reply.pixels == five_clients.images[five_clients.image_rows[rows]].sum()
        assert reply.public == five_clients.images[-7:].sum()
    assert list(second) == ["a", "c", "e"]
    assert second["c"].payload["own"] == [1.5]
    assert "own" not in second["a"].payload
    assert [int(reply.visits) for reply in second.values()] == [2, 2, 2]


def test_training_and_predictions_are_the_same_in_workers(
    opened: Opened, five_clients: FederatedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedsir.engines.federation.TEST_SLICE", 33)  # so that a hundred images are four calls
    method = FedAvg(batch_size=4)
    trained, predicted = [], []
    for n_workers in (1, 2):
        fed, _, model = opened(n_workers, method)
        predicted.append(fed.predict(model, 100).tolist())
        assert (fed.log.bytes_down, fed.log.bytes_up) == ({}, {})  # the server's own work
        trained.append(as_bytes(fed.ask(method.train, CLIENTS, model=model)))
        assert fed.failures == {}
    assert trained[0] == trained[1]
    assert predicted[0] == predicted[1]
    module = Tiny()
    load_weights(module, model)
    with torch.no_grad():
        images = torch.from_numpy(five_clients.images[five_clients.test_rows])
        logits = module.eval()(five_clients.preprocessing.normalise(images))
    assert predicted[0] == logits.argmax(dim=1).tolist()


def test_draws_differ_by_client_and_round(opened: Opened) -> None:
    fed, _, model = opened(1)

    def draws() -> list[tuple[float, ...]]:
        asked = [*fed.ask(TASKS.describe, CLIENTS).values()]
        asked += fed.compute(TASKS.look_at_public, each={"a": {}, "b": {}}, model=model).values()
        return [tuple(reply.draw.tolist()) for reply in asked]

    first, again = draws(), draws()
    fed.begin_round(2)
    assert first == again
    assert len({*first, *draws()}) == 14


@both_engines
def test_a_clients_data_are_read_only(n_workers: int, opened: Opened, five_clients: FederatedData) -> None:
    images, given = five_clients.images.copy(), five_clients.given_labels.copy()
    fed, *_ = opened(n_workers)
    assert list(fed.ask(TASKS.spoil, CLIENTS)) == list(CLIENTS)
    assert (five_clients.images == images).all()
    assert (five_clients.given_labels == given).all()
    (reply,) = fed.ask(TASKS.describe, ["b"]).values()
    assert reply.labels.tolist() == given[five_clients.rows("b")].tolist()
    assert reply.pixels == images[five_clients.image_rows[five_clients.rows("b")]].sum()
    assert reply.public == images[-7:].sum()


# ---------------------------------------------------------------- the server's own work


def test_server_work_is_the_same_in_workers_and_costs_no_traffic(opened: Opened, five_clients: FederatedData) -> None:
    found = []
    for n_workers in (1, 2):
        fed, engine, model = opened(n_workers)
        each = {k: {"own": i} for i, k in enumerate("zyx")}
        replies: dict[str, View] = fed.compute(TASKS.look_at_public, each=each, model=model, n=3)
        assert (os.getpid() in {reply.pid for reply in replies.values()}) == (n_workers == 1)
        assert list(replies) == ["z", "y", "x"]  # as asked for
        found.append([(reply.draw.tolist(), reply.payload) for reply in replies.values()])
        assert (fed.log.bytes_down, fed.log.bytes_up, engine.client_states(), fed.log.seconds) == ({}, {}, {}, {})
    assert found[0] == found[1]
    assert [payload for _, payload in found[0]] == [{"own": i, "n": 3} for i in range(3)]
    assert replies["z"].pixels == five_clients.images[-7:].sum()
    assert replies["z"].preprocessing == repr(five_clients.preprocessing)
    assert replies["z"].n_weights == sum(tensor.numel() for tensor in model.values())
    assert fed.compute(TASKS.look_at_public, each={}, model=model) == {}


@both_engines
def test_server_work_that_fails_stops_the_run_with_its_reason(n_workers: int, opened: Opened) -> None:
    fed, *_ = opened(n_workers)
    with pytest.raises(MethodError) as problem:
        fed.compute(TASKS.break_down, each={"a": {"me": "a"}, "b": {"me": "b"}}, victim="b")
    assert str(problem.value) == "Round 1: the server's task 'break_down' failed: ValueError: out of paper."
    assert fed.compute(TASKS.break_down, each={"a": {"me": "a"}}, victim="b") == {"a": Reply()}  # the engine goes on


# ---------------------------------------------------------------- processes that die


def test_two_workers_share_the_work_and_end_when_the_engine_closes(opened: Opened) -> None:
    fed, engine, _ = opened(2)
    pids = processes(fed)
    assert len(pids) == 2 and os.getpid() not in pids
    engine.close()
    deadline = time.monotonic() + 5
    while pids and time.monotonic() < deadline:
        pids = {pid for pid in pids if Path(f"/proc/{pid}").exists()} if Path("/proc").exists() else set()
    assert not pids
    here, *_ = opened(1)
    assert processes(here) == {os.getpid()}


def test_a_killed_worker_is_replaced_and_its_client_tried_again(opened: Opened, counter: str) -> None:
    fed, *_ = opened(2)
    before = processes(fed)
    replies = fed.ask(TASKS.crash, CLIENTS, victim="b", folder=counter, times=1)
    assert list(replies) == list(CLIENTS)
    assert fed.failures == {}
    assert replies["b"].seen == 1
    after = processes(fed)
    assert (len(after), len(after & before)) == (2, 1)


def test_a_client_that_kills_its_worker_twice_is_left_out(opened: Opened, counter: str) -> None:
    fed, *_ = opened(2)
    replies = fed.ask(TASKS.crash, CLIENTS, victim="d", folder=counter, times=99)
    assert list(replies) == ["a", "b", "c", "e"]
    assert fed.failures["d"].startswith("its worker process died twice")
    assert len(list(Path(counter).iterdir())) == 2
    assert list(fed.ask(TASKS.describe, CLIENTS)) == list(CLIENTS)  # and the engine still works


def test_a_worker_that_dies_between_two_tasks_is_replaced(opened: Opened) -> None:
    fed, *_ = opened(2)
    victim = fed.ask(TASKS.process, ["a"])["a"].pid
    os.kill(victim, signal.SIGKILL)
    time.sleep(0.2)
    replies = fed.ask(TASKS.process, CLIENTS)
    assert list(replies) == list(CLIENTS)
    assert victim not in {reply.pid for reply in replies.values()}


# ---------------------------------------------------------------- faults


@both_engines
def test_an_exception_stays_with_its_client(opened: Opened, n_workers: int) -> None:
    fed, engine, _ = opened(n_workers)
    assert list(fed.ask(TASKS.fail, CLIENTS, victim="c")) == ["a", "b", "d", "e"]
    assert fed.failures == {"c": "ValueError: the disk is full"}  # one line, whatever the exception says
    assert set(engine.client_states()) == {"a", "b", "d", "e"}  # a half-done task leaves no state


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ("send_object", "model.w: a object cannot travel"),
        ("send_something_else", "TypeError: send_something_else returned Process, but declares Trained"),
    ],
)
def test_a_reply_that_cannot_be_sent_is_the_clients_failure(task: str, reason: str, opened: Opened) -> None:
    fed, *_ = opened(1)
    assert not fed.ask(getattr(TASKS, task), CLIENTS)
    with pytest.raises(MethodError, match=reason):
        fed.end_round()


def test_workers_need_a_method_that_can_be_imported(opened: Opened) -> None:
    class Local(Method[MethodConfig, ServerState]):
        name = "local"

        def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
            return state

    opened(1, Local())
    with pytest.raises(ConfigError, match=r"cannot import this method or model .*use workers=1"):
        opened(2, Local())
