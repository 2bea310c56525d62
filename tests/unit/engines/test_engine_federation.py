"""The federation as the server sees it, on an engine that answers whatever a test wants."""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import torch
from torch import Tensor

from fedsir.data.shapes import Shape
from fedsir.engines.base import Answer, AnyCall, Call
from fedsir.engines.federation import EngineFederation
from fedsir.engines.local import LocalEngine
from fedsir.engines.replies import Replies
from fedsir.engines.wire import decode, encode
from fedsir.errors import MethodError
from fedsir.methods.base import client_task
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.fedsir import FedSIR, FedSIRState
from fedsir.methods.replies import Reply, Trained
from fedsir.methods.reply_check import Form
from fedsir.stages import train
from fedsir.stages.split import OffDiagonal, split_clients

MODEL = {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(0)}
CLIENTS = tuple(f"c{k}" for k in range(10))
Behaviour = Callable[[Call, dict[str, Any]], Answer]


@dataclass(frozen=True)
class Hello(Reply):
    hello: str
    sent: Any


@dataclass(frozen=True)
class Measured(Reply):
    """What can be in a reply besides a model: arrays with a shape, lists, other dataclasses, gaps."""

    losses: Annotated[Tensor, Shape("classes", has_gaps=True)]
    parts: list[Tensor]
    inner: Hello | None = None
    mean: float | None = None


class Asking(FedAvg):
    """Has tasks that nobody runs: the engine below answers them."""

    name = "asking"

    @client_task
    def greet(self) -> Hello: ...  # type: ignore[empty-body]

    @client_task
    def second(self) -> Hello: ...  # type: ignore[empty-body]

    @client_task
    def fit(self) -> Trained: ...  # type: ignore[empty-body]

    @client_task
    def measure(self) -> Measured: ...  # type: ignore[empty-body]

    def unmarked(self) -> Hello: ...  # type: ignore[empty-body]


greet, second, fit, measure = Asking.greet, Asking.second, Asking.fit, Asking.measure


def answer(reply: Any, state: Any = None) -> Answer:
    return Answer(encode(reply), encode(state or {}), 0.5)


class FakeEngine(LocalEngine):
    """Answers by a function, last client first: the order of arrival must not matter."""

    def __init__(self, behave: Behaviour) -> None:
        super().__init__()
        self.behave = behave
        self.calls: list[Call] = []
        self.commons: list[bytes] = []

    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        self.commons.append(common)
        for call in reversed(calls):
            assert isinstance(call, Call)
            self.calls.append(call)
            yield call, self.behave(call, decode(common))


def polite(call: Call, payload: dict[str, Any]) -> Answer:
    return answer({"hello": call.client, "sent": payload.get("x")})


def failing(*victims: str, reason: str = "gone") -> Behaviour:
    return lambda call, payload: (
        Answer(None, None, 0.1, failure=reason) if call.client in victims else polite(call, payload)
    )


def federation(behave: Behaviour = polite, clients: Sequence[str] = CLIENTS, **settings: Any) -> EngineFederation:
    form = Form.of(settings.pop("model", MODEL), classes=3)
    usual: dict[str, Any] = {"method": Asking(), "seed": 0, "participation": 1.0, "dropout": 0.0, "form": form}
    fed = EngineFederation(FakeEngine(behave), clients, **usual | settings)
    fed.begin_round(1)
    return fed


# ---------------------------------------------------------------- who takes part


@pytest.mark.parametrize(
    ("share", "n_clients", "expected"), [(1.0, 10, 10), (0.5, 10, 5), (0.25, 10, 3), (0.34, 3, 1), (0.01, 10, 1)]
)
def test_as_many_take_part_as_the_share_says(share: float, n_clients: int, expected: int) -> None:
    fed = federation(clients=CLIENTS[:n_clients], participation=share)
    for t in range(1, 6):
        fed.begin_round(t)
        assert len(fed.participants) == len(set(fed.participants)) == expected
        assert list(fed.participants) == sorted(fed.participants)  # federation order
    fed.begin_round(0)
    assert fed.participants == fed.clients  # everybody is there at the start


def test_participants_depend_on_seed_and_round_alone() -> None:
    def draws(seed: int, first: int = 1) -> list[tuple[str, ...]]:
        fed = federation(participation=0.3, seed=seed)
        drawn = []
        for t in range(first, 20):
            fed.begin_round(t)
            drawn.append(tuple(fed.participants))
            fed.ask(greet, fed.participants)
        return drawn

    once, again, other = draws(7), draws(7), draws(8)
    assert once == again != other
    assert draws(7, first=19) == once[-1:]  # a run that goes on after round 18 draws the same
    assert set().union(*once) == set(CLIENTS)


def test_drop_outs_are_logged_and_not_asked() -> None:
    fed = federation(dropout=0.4)
    engine: Any = fed._engine
    n_gone, who = 0, set()
    for t in range(1, 31):
        fed.begin_round(t)
        engine.calls.clear()
        replies = fed.ask(greet, CLIENTS)
        gone = [client for client, reason in fed.failures.items() if reason == "dropped out"]
        assert set(replies) == set(CLIENTS) - set(gone)
        assert {call.client for call in engine.calls} == set(replies) == set(fed.log.bytes_down)
        assert set(fed.ask(second, CLIENTS)) == set(replies)  # who is gone is gone for the whole round
        n_gone += len(gone)
        who.add(tuple(gone))
    assert 0.3 < n_gone / 300 < 0.5
    assert len(who) > 20  # every round draws anew


def test_everybody_dropping_out_is_an_ordinary_round() -> None:
    fed = federation(dropout=0.999999)
    assert fed.ask(greet, CLIENTS) == {}
    fed.end_round()
    assert fed.failures == dict.fromkeys(CLIENTS, "dropped out")


# ---------------------------------------------------------------- replies


def test_replies_come_in_federation_order() -> None:
    fed = federation()
    assert list(fed.ask(greet, ["c7", "c1", "c4", "c1"])) == ["c1", "c4", "c7"]
    assert fed.ask(greet, ["c3"], x=5) == {"c3": Hello("c3", 5)}
    assert fed.ask(greet, []) == {}


def test_each_client_gets_its_own_payload_on_top() -> None:
    fed = federation()
    fed.ask(greet, ["c0", "c1"], each={"c1": {"extra": torch.ones(2)}}, x=1)
    engine: Any = fed._engine
    own = {call.client: decode(call.own) for call in engine.calls}
    assert own["c0"] == {}
    assert own["c1"]["extra"].tolist() == [1, 1]
    assert decode(engine.commons[0]) == {"x": 1}


def good(**over: Any) -> dict[str, Any]:
    return {"model": MODEL, "n_samples": 3, "loss": 0.5} | over


def measured(**over: Any) -> dict[str, Any]:
    return {"losses": torch.tensor([1.0, math.nan, 2.0]), "parts": [torch.zeros(1)]} | over


OTHER_MODEL = "model has other names, types or shapes than the model that was sent"
RUBBISH: dict[str, tuple[Callable[..., Reply], Any, str]] = {
    "no mapping": (fit, [1, 2], "the reply is not a mapping"),
    "no payload": (fit, b"rubbish", "These bytes are no fedsir payload"),
    "missing field": (fit, {"model": MODEL, "n_samples": 3}, "loss is missing"),
    "unknown field": (fit, good(more=1), "more is not a field of Trained"),
    "NaN in the model": (fit, good(model=MODEL | {"w": torch.tensor([math.nan, 0])}), "model.w is not finite"),
    "other shape": (fit, good(model=MODEL | {"w": torch.zeros(3)}), OTHER_MODEL),
    "missing name": (fit, good(model={"w": torch.zeros(2)}), OTHER_MODEL),
    "additional name": (fit, good(model=MODEL | {"evil": torch.zeros(1)}), OTHER_MODEL),
    "other type": (fit, good(model=MODEL | {"w": torch.zeros(2, dtype=torch.float64)}), OTHER_MODEL),
    "no tensors": (fit, good(model={"w": [1.0, 2.0], "n": 0}), "model is not a model"),
    "no model": (fit, good(model=7), "model is not a model"),
    "half a sample": (fit, good(n_samples=0.5), "n_samples is not a whole number"),
    "yes for a count": (fit, good(n_samples=True), "n_samples is not a whole number"),
    "NaN for a loss": (fit, good(loss=math.nan), "loss is not finite"),
    "text for a number": (fit, good(loss="low"), "loss is not a number"),
    "number for a text": (greet, {"hello": 3, "sent": None}, "hello is not a text"),
    "number of classes": (measure, measured(losses=torch.zeros(4)), "losses is (4,), not classes with classes = 3"),
    "number of axes": (measure, measured(losses=torch.zeros(3, 1)), "losses has 2 axes instead of classes"),
    "kind of number": (measure, measured(losses=torch.zeros(3, dtype=torch.int64)), "losses holds torch.int64"),
    "infinite where gaps may be": (measure, measured(losses=torch.full((3,), math.inf)), "losses is not finite"),
    "list instead of array": (measure, measured(losses=[1.0, 2.0, 3.0]), "losses is not an array"),
    "tensor in a list": (measure, measured(parts=[torch.zeros(1), torch.tensor(math.nan)]), "parts[1] is not finite"),
    "no list": (measure, measured(parts=3), "parts is not a list"),
    "field of a field": (measure, measured(inner={"hello": "x"}), "inner.sent is missing"),
    "number for a field": (measure, measured(inner=3), "inner is not a mapping"),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_a_reply_that_is_not_what_the_task_declares_is_left_out_and_the_field_named(name: str) -> None:
    task, rubbish, reason = RUBBISH[name]
    right = {fit: good(), measure: measured(), greet: {"hello": "c1", "sent": 1}}[task]

    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        sent = encode(right) if call.client != "c0" else rubbish if isinstance(rubbish, bytes) else encode(rubbish)
        return Answer(sent, encode({"kept": torch.ones(1)}), 0.5)

    fed = federation(behave, clients=CLIENTS[:2])
    assert list(fed.ask(task, CLIENTS[:2])) == ["c1"]
    assert f": {reason}" in fed.failures["c0"]  # after the place where the task is written
    assert set(fed._engine.client_states()) == {"c1"}  # what came with rubbish is not kept either
    assert fed.log.bytes_up["c0"] > 0  # it was still sent


def test_a_reply_is_what_the_task_declares() -> None:
    fed = federation(lambda call, payload: answer(measured(inner={"hello": "x", "sent": [1]})), clients=["a"])
    (reply,) = fed.ask(measure, ["a"]).values()
    assert type(reply) is Measured
    assert (reply.inner, reply.mean) == (Hello("x", [1]), None)  # what may be left out may be missing
    assert reply.losses.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(
    ("call", "task", "message"),
    [
        ("ask", "fit", r"^pass the task itself: fed\.ask\(self\.fit, …\)$"),
        ("compute", "score", r"^pass the task itself: fed\.compute\(self\.score, …\)$"),
        ("ask", Asking.unmarked, r"^fed\.ask: unmarked is not a task of asking that is marked with @client_task$"),
        ("ask", FedSIR().train_clean, "train_clean is not a task of asking"),
        ("ask", FedAvg().train, None),  # inherited
        ("ask", 7, "7 is not a task"),
        ("compute", greet, r"greet is not a task of asking that is marked with @server_task"),
    ],
)
def test_only_a_task_of_this_method_is_asked_for(call: str, task: Any, message: str | None) -> None:
    fed = federation(lambda call, payload: answer(good()), clients=["a"])
    if message is None:
        assert list(fed.ask(task, ["a"])) == ["a"]
        return
    with pytest.raises(TypeError, match=message):
        fed.ask(task, ["a"]) if call == "ask" else fed.compute(task)


# ---------------------------------------------------------------- failures


def test_a_failing_client_is_left_out_with_its_reason() -> None:
    fed = federation(failing("c2", reason="ValueError: disk full"), clients=CLIENTS[:4])
    assert list(fed.ask(greet, CLIENTS[:4])) == ["c0", "c1", "c3"]
    assert fed.failures == {"c2": "ValueError: disk full"}
    fed.end_round()  # one answer is enough to go on
    fed.begin_round(2)
    assert fed.failures == {}


def test_everybody_failing_stops_the_run_with_the_reason_also_at_the_second_ask() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        return (
            failing(*CLIENTS, reason="MemoryError")(call, payload) if call.task == "second" else polite(call, payload)
        )

    fed = federation(behave)
    fed.begin_round(4)
    fed.ask(greet, CLIENTS)
    fed.ask(second, CLIENTS[:9])
    fed.end_round()  # c9 has not failed
    fed.ask(second, CLIENTS[9:])
    with pytest.raises(MethodError, match="Round 4: all 10 clients failed; client c0: MemoryError"):
        fed.end_round()


def test_diverged_training_is_called_so() -> None:
    fed = federation(lambda call, payload: answer(good(loss=math.inf)), clients=["a"])
    fed.ask(fit, ["a"])
    with pytest.raises(MethodError, match=r"client a: .*: loss is not finite\. Training diverged: lower method\.lr"):
        fed.end_round()


def test_an_answer_that_the_method_cannot_use_is_no_broken_client() -> None:
    fed = federation()
    fed.ask(greet, ["c1"])
    fed.reject("c1", "its spectra are unusable")
    fed.end_round()
    assert fed.failures == {"c1": "its spectra are unusable"}


# ---------------------------------------------------------------- bytes, seconds, state, records


def test_bytes_are_those_of_the_messages() -> None:
    sizes: dict[str, int] = {}

    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        reply = encode({"hello": "x" * int(call.client[1:]) * 100, "sent": 0})
        sizes[call.client] = sizes.get(call.client, 0) + len(reply)
        return Answer(reply, encode({"secret": torch.zeros(9999)}), 0.25)

    fed = federation(behave, clients=CLIENTS[:3])
    own = {"c1": {"extra": torch.zeros(50)}}
    fed.ask(greet, CLIENTS[:3], model=MODEL)
    fed.ask(second, CLIENTS[:2], each=own, model=MODEL)
    common = len(encode({"model": MODEL}))
    assert fed.log.bytes_up == sizes  # client state never leaves the client and is not counted
    assert fed.log.bytes_down == {
        "c0": 2 * common + len(encode({})),
        "c1": 2 * common + len(encode(own["c1"])),
        "c2": common,
    }
    assert fed.log.seconds == {"c0": 0.5, "c1": 0.5, "c2": 0.25}


def test_the_engine_remembers_for_clients_that_remember_something() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        if call.round == 2:
            return failing("a")(call, payload)
        return answer({"hello": "", "sent": 0}, {"round": torch.tensor(call.round)} if call.client != "c" else None)

    fed = federation(behave, clients=["a", "b", "c"])
    remembered: list[Mapping[str, bytes]] = []
    for t in (1, 2, 3):
        fed.begin_round(t)
        fed.ask(greet, ["a", "b", "c"])
        remembered.append(fed._engine.client_states())
    assert [list(states) for states in remembered] == [["b", "a"], ["a"], ["a", "b"]]  # c has nothing to remember
    assert remembered[1]["a"] == remembered[0]["a"]  # who failed remembers what it did before
    fed._engine.restore(remembered[0])
    assert fed._engine.client_states() == remembered[0]


def test_records_of_a_round_are_joined_and_then_forgotten() -> None:
    fed = federation()
    fed.record(loss=1.0)
    fed.record(kd_weight=0.1, loss=2.0)
    assert fed.log.values == {"loss": 2.0, "kd_weight": 0.1}
    fed.begin_round(2)
    assert fed.log.values == {}


# ---------------------------------------------------------------- many clients


def peak_of_a_round(n_participants: int, model: dict[str, torch.Tensor]) -> int:
    """Return the most bytes of replies alive in a FedSIR round; decoded tensors lie in Python's memory."""
    clients = [str(k) for k in range(n_participants)]

    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        moved = {name: tensor + int(call.client) for name, tensor in payload["model"].items()}
        more = {"spectra": None} if call.task == "train_clean" else {"n_corrected": 0, "n_undecided": 0}
        return answer({"model": moved, "n_samples": 1, "loss": 0.0, **more})

    split = split_clients({client: OffDiagonal(0.8 if int(client) % 3 else 0.1, 0.5, 3) for client in clients})
    assert len(split.noisy) > len(split.clean) > 0
    method = FedSIR().resolved(10)
    fed = federation(behave, clients, model=model, method=method)
    gc.collect()
    tracemalloc.start()
    state = method.round(1, FedSIRState(model=model, split=split, clean_reference=model), fed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(fed.log.answered) == n_participants
    assert state.model.keys() == model.keys()
    return peak


def test_the_server_holds_a_few_models_however_many_clients_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"w": torch.zeros(100_000)}
    size = 400_000  # bytes
    monkeypatch.setattr(Replies.__init__, "__defaults__", (2 * size, None))  # room for fewer than two replies
    monkeypatch.setattr(train, "HELD_BYTES", 4 * size)  # and for four clean models
    few, many = peak_of_a_round(24, model), peak_of_a_round(96, model)
    assert many < few + 2 * size
    assert many < 20 * size
