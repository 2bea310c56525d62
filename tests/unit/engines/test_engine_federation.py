"""The federation as the server sees it, on an engine that answers whatever a test wants."""

import gc
import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from fedsir.engines.client_host import Answer, Call
from fedsir.engines.federation import EngineFederation
from fedsir.engines.local import AnyCall
from fedsir.engines.replies import Replies
from fedsir.engines.wire import decode, encode
from fedsir.errors import MethodError
from fedsir.methods.fedsir import FedSIR, FedSIRState
from fedsir.methods.fedsir_settings import FedSIRConfig
from fedsir.stages import train
from fedsir.stages.split import OffDiagonal, split_clients

MODEL = {"w": torch.tensor([1.0, 2.0]), "n": torch.tensor(0)}
CLIENTS = tuple(f"c{k}" for k in range(10))
Behaviour = Callable[[Call, dict[str, Any]], Answer]


def answer(reply: Any, state: Any = None) -> Answer:
    return Answer(encode(reply), encode(state or {}), 0.5)


class FakeEngine:
    """Answers by a function, last client first: the order of arrival must not matter."""

    def __init__(self, behave: Behaviour) -> None:
        self.behave = behave
        self.calls: list[Call] = []
        self.commons: list[bytes] = []

    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        self.commons.append(common)
        for call in calls:
            assert isinstance(call, Call)
            self.calls.append(call)
        for call in reversed(self.calls[-len(calls) :] if calls else []):
            yield call, self.behave(call, decode(common))

    def close(self) -> None:
        """Nothing to give back."""


def polite(call: Call, payload: dict[str, Any]) -> Answer:
    return answer({"hello": call.client, "sent": payload.get("x")})


def federation(behave: Behaviour = polite, clients: Sequence[str] = CLIENTS, **settings: Any) -> EngineFederation:
    chosen: dict[str, Any] = {"seed": 0, "participation": 1.0, "dropout": 0.0, "initial_model": MODEL} | settings
    fed = EngineFederation(FakeEngine(behave), clients, **chosen)
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


def test_participants_depend_on_seed_and_round_alone() -> None:
    def draws(seed: int) -> list[tuple[str, ...]]:
        fed = federation(participation=0.3, seed=seed)
        drawn = []
        for t in range(1, 20):
            fed.begin_round(t)
            drawn.append(tuple(fed.participants))
            fed.ask("task", fed.participants)
        return drawn

    once, again, other = draws(7), draws(7), draws(8)
    assert once == again != other
    assert len(set(once)) > 5
    late = federation(participation=0.3, seed=7)
    late.begin_round(19)  # a run that goes on after round 18 draws the same
    assert tuple(late.participants) == once[-1]
    assert set().union(*once) == set(CLIENTS)


def test_everybody_is_there_at_the_start() -> None:
    fed = federation(participation=0.2)
    fed.begin_round(0)
    assert fed.participants == fed.clients == CLIENTS


def test_drop_outs_are_logged_and_not_asked() -> None:
    fed = federation(dropout=0.4)
    engine: Any = fed._engine
    n_gone, who = 0, set()
    for t in range(1, 31):
        fed.begin_round(t)
        engine.calls.clear()
        replies = fed.ask("task", CLIENTS)
        gone = [client for client, reason in fed.failures.items() if reason == "dropped out"]
        assert set(replies) == set(CLIENTS) - set(gone)
        assert {call.client for call in engine.calls} == set(replies)
        assert set(fed.log.bytes_down) == set(replies)
        # Who is gone is gone for the whole round.
        assert set(fed.ask("another", CLIENTS)) == set(replies)
        n_gone += len(gone)
        who.add(tuple(gone))
    assert 0.3 < n_gone / 300 < 0.5
    assert len(who) > 20  # every round draws anew


def test_everybody_dropping_out_is_an_empty_round_not_an_error() -> None:
    fed = federation(dropout=0.999999)
    assert fed.ask("task", CLIENTS) == {}
    assert set(fed.failures.values()) == {"dropped out"}


# ---------------------------------------------------------------- replies


def test_replies_come_in_federation_order() -> None:
    fed = federation()
    assert list(fed.ask("task", ["c7", "c1", "c4", "c1"])) == ["c1", "c4", "c7"]
    assert fed.ask("task", ["c3"], x=5)["c3"] == {"hello": "c3", "sent": 5}
    assert fed.ask("task", []) == {}


def test_each_client_gets_its_own_payload_on_top() -> None:
    engine = FakeEngine(polite)
    fed = EngineFederation(engine, CLIENTS, seed=0, participation=1.0, dropout=0.0, initial_model=MODEL)
    fed.ask("task", ["c0", "c1"], each={"c1": {"extra": torch.ones(2)}}, x=1)
    assert decode(engine.calls[0].own) == {}
    assert decode(engine.calls[1].own)["extra"].tolist() == [1, 1]
    assert decode(engine.commons[0]) == {"x": 1}


def test_everybody_failing_at_the_second_ask_stops_the_run() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        return Answer(None, None, 0.1, failure="MemoryError") if call.task == "second" else polite(call, payload)

    fed = federation(behave)
    fed.ask("first", CLIENTS)
    fed.ask("second", CLIENTS[:9])
    fed.end_round()  # c9 has not failed
    fed.ask("second", CLIENTS[9:])
    with pytest.raises(MethodError, match="all 10 clients failed; client c0: MemoryError"):
        fed.end_round()


def test_an_answer_that_the_method_cannot_use_is_no_broken_client() -> None:
    fed = federation()
    fed.ask("first", ["c1"])
    fed.reject("c1", "its spectra are unusable")
    fed.end_round()
    assert fed.failures == {"c1": "its spectra are unusable"}


def test_a_failing_client_is_left_out_with_its_reason() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        if call.client == "c2":
            return Answer(None, None, 0.1, failure="ValueError: disk full")
        return polite(call, payload)

    fed = federation(behave, clients=CLIENTS[:4])
    assert list(fed.ask("task", CLIENTS[:4])) == ["c0", "c1", "c3"]
    assert fed.failures == {"c2": "ValueError: disk full"}
    fed.begin_round(2)
    assert fed.failures == {}


NAN_MODEL = {"w": torch.tensor([math.nan, 0.0]), "n": torch.tensor(0)}
RUBBISH = {
    "NaN model": ({"model": NAN_MODEL}, "not finite"),
    "infinite tensor elsewhere": ({"spectra": {"gaps": torch.tensor([math.inf])}}, "spectra: gaps is not finite"),
    "tensor in a list": ({"parts": [torch.zeros(1), torch.tensor(math.nan)]}, "parts: 1 is not finite"),
    "other shape": ({"model": {"w": torch.zeros(3), "n": torch.tensor(0)}}, "its model has other names"),
    "missing name": ({"model": {"w": torch.zeros(2)}}, "its model has other names"),
    "additional name": ({"model": {**MODEL, "evil": torch.zeros(1)}}, "its model has other names"),
    "other type": ({"model": {**MODEL, "w": torch.zeros(2, dtype=torch.float64)}}, "other"),
    "no tensor": ({"model": {"w": [1.0, 2.0], "n": 0}}, "other"),
    "no model at all": ({"model": 7}, "other"),
    "no reply but a list": ([1, 2], ""),
}


@pytest.mark.parametrize("name", RUBBISH)
def test_rubbish_is_rejected_with_a_reason(name: str) -> None:
    rubbish, reason = RUBBISH[name]

    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        return answer(rubbish if call.client == "c0" else {"model": MODEL}, {"kept": torch.ones(1)})

    fed = federation(behave, clients=CLIENTS[:2])
    assert list(fed.ask("train", CLIENTS[:2])) == ["c1"]
    assert fed.failures["c0"]
    assert reason in fed.failures["c0"]
    assert set(fed.client_states) == {"c1"}  # what came with rubbish is not kept either


def test_bytes_that_are_no_payload_are_rejected() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        return Answer(b"rubbish", encode({}), 0.0) if call.client == "c1" else polite(call, payload)

    fed = federation(behave, clients=CLIENTS[:2])
    assert list(fed.ask("task", CLIENTS[:2])) == ["c0"]
    assert "no fedsir payload" in fed.failures["c1"]


def test_a_plain_number_may_be_undefined() -> None:
    fed = federation(lambda call, payload: answer({"mean": math.nan}), clients=["a"])
    assert math.isnan(fed.ask("identify", ["a"])["a"]["mean"])


def test_when_everybody_fails_the_error_names_the_reason() -> None:
    fed = federation(lambda call, payload: Answer(None, None, 0.0, failure="MemoryError: no room"), clients=["a", "b"])
    fed.begin_round(4)
    assert not fed.ask("train", ["b", "a"])
    with pytest.raises(MethodError, match=r"Round 4: all 2 clients failed; client a: MemoryError: no room"):
        fed.end_round()


def test_one_answer_is_enough_to_go_on() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        return polite(call, payload) if call.client == "a" else Answer(None, None, 0.0, failure="gone")

    fed = federation(behave, clients=["a", "b"])
    fed.ask("train_clean", ["a"])
    assert not fed.ask("train_noisy", ["b"])
    fed.end_round()
    assert fed.failures == {"b": "gone"}


def test_everybody_dropping_out_is_an_ordinary_round() -> None:
    fed = federation(polite, clients=["a", "b"], dropout=0.999999)
    assert not fed.ask("train", ["a", "b"])
    fed.end_round()
    assert set(fed.failures) == {"a", "b"}


def test_a_method_can_reject_what_it_received() -> None:
    fed = federation(clients=["a", "b"])
    fed.ask("task", ["a", "b"])
    fed.reject("b", "its spectra are unusable: not finite")
    assert fed.failures == {"b": "its spectra are unusable: not finite"}


# ---------------------------------------------------------------- bytes, seconds, state


def test_bytes_are_those_of_the_messages() -> None:
    sizes: dict[str, int] = {}

    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        reply = encode({"x": torch.zeros(int(call.client[1:]) * 100)})
        sizes[call.client] = sizes.get(call.client, 0) + len(reply)
        return Answer(reply, encode({"secret": torch.zeros(9999)}), 0.25)

    fed = federation(behave, clients=CLIENTS[:3])
    own = {"c1": {"extra": torch.zeros(50)}}
    fed.ask("one", CLIENTS[:3], model=MODEL)
    fed.ask("two", CLIENTS[:2], each=own, model=MODEL)
    common = len(encode({"model": MODEL}))
    assert fed.log.bytes_up == sizes  # client state never leaves the client and is not counted
    assert fed.log.bytes_down == {
        "c0": 2 * common + len(encode({})),
        "c1": 2 * common + len(encode(own["c1"])),
        "c2": common,
    }
    assert fed.log.seconds == {"c0": 0.5, "c1": 0.5, "c2": 0.25}


def test_a_rejected_reply_was_still_sent_and_is_counted() -> None:
    fed = federation(
        lambda call, payload: answer({"model": NAN_MODEL if call.client == "a" else MODEL}), clients=["a", "b"]
    )
    fed.ask("train", ["a", "b"])
    assert fed.log.bytes_up["a"] > 0


def test_client_state_survives_rounds_but_not_failures() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        visits = decode(call.state).get("visits", torch.tensor(0)) + 1
        if call.round == 2 and call.client == "a":
            return Answer(None, None, 0.0, failure="died")
        return answer({"visits": int(visits)}, {"visits": visits})

    fed = federation(behave, clients=["a", "b"])
    for t in (1, 2, 3):
        fed.begin_round(t)
        replies = fed.ask("count", ["a", "b"])
    assert replies == {"a": {"visits": 2}, "b": {"visits": 3}}
    resumed = federation(behave, clients=["a", "b"], client_states=dict(fed.client_states))
    resumed.begin_round(4)
    assert resumed.ask("count", ["a", "b"]) == {"a": {"visits": 3}, "b": {"visits": 4}}


def test_records_of_a_round_are_joined_and_then_forgotten() -> None:
    fed = federation()
    fed.record(loss=1.0)
    fed.record(kd_weight=0.1, loss=2.0)
    assert fed.log.values == {"loss": 2.0, "kd_weight": 0.1}
    fed.begin_round(2)
    assert fed.log.values == {}


# ---------------------------------------------------------------- many clients


def test_a_client_that_remembers_nothing_is_not_remembered() -> None:
    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        keeps = payload["keeps"] and call.client == "c3"
        return answer({}, {"corrected_labels": torch.tensor([1])} if keeps else None)

    fed = federation(behave)
    fed.ask("task", CLIENTS, keeps=True)
    assert list(fed.client_states) == ["c3"]
    fed.ask("task", CLIENTS, keeps=False)
    assert fed.client_states == {}


def peak_of_a_round(n_participants: int, model: dict[str, torch.Tensor]) -> int:
    """Return the most bytes of replies alive in a FedSIR round; decoded tensors lie in Python's memory."""
    clients = [str(k) for k in range(n_participants)]

    def behave(call: Call, payload: dict[str, Any]) -> Answer:
        moved = {name: tensor + int(call.client) for name, tensor in payload["model"].items()}
        return answer({"model": moved, "n_samples": 1, "loss": 0.0, "n_corrected": 0, "n_undecided": 0})

    means = {client: OffDiagonal(0.8 if int(client) % 3 else 0.1, 0.5, 3) for client in clients}
    split = split_clients(means)
    assert len(split.noisy) > len(split.clean) > 0
    fed = federation(behave, clients, initial_model=model)
    method = FedSIR(FedSIRConfig(name="fedsir").resolved(10))
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
