"""RHFL: who learns what from whom, in which order, and both sides of each choice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, Page, weights
from fedsir.data.source import Source
from fedsir.methods.base import Client
from fedsir.methods.rhfl import RHFL, FirstAnswers, Learnt, Pretrained, RHFLState
from fedsir.models.weights import weights_of
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def rhfl(rounds: int = 100, **settings: Any) -> RHFL:
    return RHFL(batch_size=8, **settings).resolved(rounds)


def test_pretraining_grows_with_the_rounds() -> None:
    assert [rhfl(rounds).config.pretrain_epochs for rounds in (100, 40, 20, 2, 1)] == [40, 16, 8, 1, 1]
    assert rhfl(100, pretrain_epochs=3).config.pretrain_epochs == 3


# ---------------------------------------------------------------- server

N_BATCHES = 3
ANSWERS = {"a": [1.0, 0.0], "b": [0.5, 0.5], "c": [0.0, 1.0]}


def answer(task: str, client: str, n_answers: int = 4) -> Any:
    said = torch.tensor([ANSWERS[client]] * n_answers)
    if task == "pretrain":
        return Pretrained(10, 2.0)
    return FirstAnswers(2.0, N_BATCHES, said) if task == "look" else Learnt(10, 0.5, 2.0, said)


def started(*clients: str, losses: dict[str, float] | None = None) -> RHFLState:
    return RHFLState(model=weights(0.0), started=list(clients), losses=losses or {})


def test_the_start_trains_everybody_and_keeps_the_common_model() -> None:
    fed = FakeFederation("abc", answer, absent=("c",))
    state = rhfl().start(fed, weights(7.0))
    assert fed.pages == [Page("pretrain", ["a", "b"], {}, {"model": weights(7.0)})]
    assert state == RHFLState(model=weights(7.0), started=["a", "b"])


def test_a_round_goes_batch_by_batch() -> None:
    fed = FakeFederation("abc", answer)
    rhfl().round(1, started(*"abc"), fed)
    assert [page.task for page in fed.pages] == ["look", "learn", "learn", "learn"]
    assert [page.payload.get("first") for page in fed.pages] == [None, 0, 1, 2]
    assert [page.payload.get("is_last") for page in fed.pages] == [None, False, False, True]
    assert len({page.payload["draw"] for page in fed.pages}) == 1
    # Without a history w = 1 / 2 each: a hears half of b's and half of c's answers.
    told = {k: own["others"][0].tolist() for k, own in fed.pages[1].each.items()}
    assert told == {"a": [0.25, 0.75], "b": [0.5, 0.5], "c": [0.75, 0.25]}
    assert fed.values["public_loss"] == 0.5
    assert fed.values["weights"] == {"a": 0.5, "b": 0.5, "c": 0.5}


def test_one_exchange_a_round_has_all_batches_in_it() -> None:
    fed = FakeFederation("abc", answer)
    rhfl(exchange="round").round(1, started(*"abc"), fed)
    assert [page.task for page in fed.pages] == ["look", "learn"]
    assert (fed.pages[1].payload["first"], fed.pages[1].payload["is_last"]) == (0, True)


def test_losses_are_kept_for_the_next_rounds_weights() -> None:
    fed = FakeFederation("abc", answer, absent=("c",))
    state = rhfl().round(2, started(*"abc", losses={"a": 4.0, "b": 2.0, "c": 9.0}), fed)
    assert state.losses == {"a": 2.0, "b": 2.0, "c": 9.0}  # c was away and keeps its last one
    assert fed.values["weights"]["a"] > fed.values["weights"]["b"]
    assert sum(fed.values["weights"].values()) == pytest.approx(1)


def test_a_late_comer_trains_first() -> None:
    fed = FakeFederation("abc", answer)
    state = rhfl().round(5, started("a", "b"), fed)
    assert fed.pages[0] == Page("pretrain", ["c"], {}, {"model": weights(0.0)})
    assert (fed.pages[1].task, fed.pages[1].clients) == ("look", ["a", "b", "c"])
    assert state.started == ["a", "b", "c"]
    away = FakeFederation("abc", answer, absent=("c",))
    assert rhfl().round(5, started("a", "b"), away).started == ["a", "b"]
    assert away.pages[1].clients == ["a", "b"]


def test_one_client_alone_trains_on_its_own() -> None:
    fed = FakeFederation("abc", answer, participants=["b"])
    rhfl().round(1, started(*"abc"), fed)
    assert [page.task for page in fed.pages] == ["look", "learn"]
    assert fed.pages[1].each == {"b": {"others": None}}
    assert fed.pages[1].payload["is_last"]


def test_nobody_answers() -> None:
    fed = FakeFederation("abc", answer, absent=("a", "b", "c"))
    before = started(*"abc", losses={"a": 1.0})
    assert rhfl().round(1, before, fed) == before
    assert fed.values["loss"] is None


def test_answers_about_another_number_of_images_are_left_out() -> None:
    fed = FakeFederation("abc", lambda task, client: answer(task, client, n_answers=3 if client == "a" else 4))
    state = rhfl().round(1, started(*"abc"), fed)
    assert fed.failures == {"a": "it answered 3 public images, not 4"}
    assert fed.pages[1].clients == ["b", "c"]
    assert "a" not in state.losses


@pytest.mark.parametrize("row", [[1.0, 1.0], [2.0, -1.0]])
def test_answers_that_are_no_probabilities_are_a_fault(row: list[float]) -> None:
    said = torch.tensor([[0.5, 0.5], row])
    assert (
        FirstAnswers(1.0, 1, said).fault()
        == Learnt(1, None, answers=said).fault()
        == "answers: a row is no probability"
    )
    assert FirstAnswers(1.0, 1, said[:1]).fault() is None


def test_who_fails_midway_is_not_asked_again() -> None:
    fed = FakeFederation("abc", answer)

    def reply(task: str, client: str) -> Any:
        fed.absent = ("c",) if len(fed.pages) == 2 else fed.absent  # from the second batch on
        return answer(task, client)

    fed.reply = reply
    rhfl().round(1, started(*"abc"), fed)
    assert [page.clients for page in fed.pages] == [["a", "b", "c"], ["a", "b", "c"], ["a", "b"], ["a", "b"]]


def test_the_state_survives_its_tree() -> None:
    state = rhfl().round(1, started(*"ab"), FakeFederation("abc", answer))
    assert RHFLState.from_tree(state.to_tree()) == state


# ---------------------------------------------------------------- client

START = weights_of(Tiny())


@pytest.fixture
def make(make_client: MakeClient, digits: Source) -> MakeClient:
    def with_public(n: int = 30, n_public: int = 12, **more: Any) -> Client:
        client = make_client(n, **more)
        client.public = torch.from_numpy(digits.test_images[:n_public])
        return client

    return with_public


def model_of(client: Client) -> torch.Tensor:
    return torch.cat([t.flatten().to(torch.float32) for t in client.state["model"].values()])


def test_a_pretrained_client_remembers_its_model(make: MakeClient) -> None:
    client = make()
    reply = rhfl(pretrain_epochs=2).pretrain(client, model=START)
    assert vars(reply).keys() == {"n_samples", "loss"}  # no model leaves the client
    assert client.state.keys() == {"model"}
    assert int(client.state["model"]["norm.num_batches_tracked"]) == 8  # two epochs of four batches


def test_a_look_tells_loss_and_first_answers_and_moves_statistics_once(make: MakeClient) -> None:
    client = make(state={"model": START})
    reply = rhfl(public_batch_size=4).look(client, draw=3)
    assert reply.n_batches == 3
    assert reply.answers.shape == (4, 10)
    assert reply.answers.sum(dim=1).tolist() == pytest.approx([1.0] * 4)
    after = client.state["model"]
    assert torch.equal(after["head.weight"], START["head.weight"])
    assert int(after["norm.num_batches_tracked"]) == 4  # own samples, as published; not the public ones
    all_of_them = rhfl(public_batch_size=4, exchange="round").look(make(state={"model": START}), draw=3)
    assert all_of_them.answers.shape == (12, 10)


def uniform(n: int) -> torch.Tensor:
    return torch.full((n, 10), 0.1)


def test_a_step_brings_answers_nearer_to_the_others(make: MakeClient) -> None:
    client, method = make(state={"model": START}), rhfl(public_batch_size=4, lr=0.01)
    losses = [method.learn(client, draw=3, first=0, is_last=False, others=uniform(4)) for _ in range(5)]
    told = [reply.public_loss or 0.0 for reply in losses]
    assert told == sorted(told, reverse=True)
    assert told[-1] > 2.3025  # log 10, the entropy of what the others say


def test_only_the_last_call_trains_on_own_samples(make: MakeClient) -> None:
    method = rhfl(public_batch_size=4)
    midway, last = (make(state={"model": START}) for _ in range(2))
    early = method.learn(midway, draw=3, first=0, is_last=False, others=uniform(4))
    late = method.learn(last, draw=3, first=2, is_last=True, others=uniform(4))
    assert (early.loss, late.answers) == (None, None)
    assert early.answers is not None and late.loss is not None
    assert int(midway.state["model"]["norm.num_batches_tracked"]) == 1
    assert int(last.state["model"]["norm.num_batches_tracked"]) == 1 + 4


@pytest.mark.parametrize(
    ("n", "settings", "steps"),
    [
        (12, {}, 2),  # 12 // 12 = 1 epoch of two batches
        (30, {}, 4),  # 12 // 30 = 0: once all the same
        (4, {}, 3),  # three epochs
        (1, {}, 10),  # twelve would be due
        (1, {"max_epochs": 20}, 12),
        (4, {"epochs": 2}, 6),
    ],
)
def test_small_clients_train_longer_up_to_a_limit(
    n: int, settings: dict[str, Any], steps: int, make: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_steps = []
    original = RHFL.loss_of
    monkeypatch.setattr(RHFL, "loss_of", lambda *args: n_steps.append(1) or original(*args))
    rhfl(**settings).learn(make(n, state={"model": START}), draw=3, first=0, is_last=True, others=None)
    assert len(n_steps) == steps


def test_answers_in_between_are_of_the_model_that_learnt(make: MakeClient) -> None:
    method = rhfl(public_batch_size=4)
    client = make(state={"model": START})
    said = method.learn(client, draw=3, first=0, is_last=False, others=uniform(4)).answers
    public = method.public_batches(client, 3)
    with torch.no_grad():
        expected = client.module(client.state["model"]).train()(next(public.images(1, 2))).softmax(dim=1)
    assert said is not None and torch.equal(said, expected)


@pytest.mark.parametrize("optimiser", ["fresh", "kept"])
def test_batch_by_batch_is_one_call_with_the_same_answers(optimiser: str, make: MakeClient) -> None:
    one, several = (make(state={"model": START}) for _ in range(2))
    settings: dict[str, Any] = {"public_batch_size": 4, "public_optimiser": optimiser}
    rhfl(exchange="round", **settings).learn(one, draw=3, first=0, is_last=True, others=uniform(12))
    for first in range(3):
        rhfl(**settings).learn(several, draw=3, first=first, is_last=first == 2, others=uniform(4))
        assert ("moments" in several.state) == (optimiser == "kept" and first < 2)
    assert torch.equal(model_of(one), model_of(several))
    assert one.state.keys() == {"model"}
    other = make(state={"model": START})
    settings["public_optimiser"] = "kept" if optimiser == "fresh" else "fresh"
    rhfl(exchange="round", **settings).learn(other, draw=3, first=0, is_last=True, others=uniform(12))
    assert not torch.equal(model_of(one), model_of(other))
