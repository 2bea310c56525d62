"""FedCorr: three stages in one run, who is visited and corrected when, and both sides of each published choice."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, weights
from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT, Client
from fedsir.methods.fedcorr import NOT_VISITED, TOO_FEW, Corrected, FedCorr, FedCorrState, TrainedOnCorrected, Visited
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom
from fedsir.stages.split import ClientSplit
from tiny_network import Tiny, always

MakeClient = Callable[..., Client]


def fedcorr(rounds: int = 100, **settings: Any) -> FedCorr:
    return FedCorr(batch_size=8, **settings).resolved(rounds)


# ---------------------------------------------------------------- schedule


@pytest.mark.parametrize(
    ("rounds", "settings", "expected"),
    [
        (100, {}, (5, 50, 45)),
        (20, {}, (1, 10, 9)),
        (200, {}, (10, 100, 90)),
        (4, {}, (1, 2, 1)),
        (3, {}, (1, 1, 1)),
        (2, {}, (1, 0, 1)),
        (1, {}, (1, 0, 0)),
        (20, {"iterations": 5}, (5, 10, 5)),  # what is stated stays, and the open part fits in
        (20, {"iterations": 15}, (15, 4, 1)),
        (20, {"iterations": 2, "fine_tuning_rounds": 0}, (2, 0, 18)),
        (3, {"iterations": 5}, (3, 0, 0)),
    ],
)
def test_the_rounds_are_shared_among_three_stages(
    rounds: int, settings: dict[str, int], expected: tuple[int, int, int]
) -> None:
    method = fedcorr(rounds, **settings)
    names = [method.stage_of(t) for t in range(1, rounds + 1)]
    assert names == sorted(names, key=["pre-processing", "fine-tuning", "usual"].index)
    assert (names.count("pre-processing"), names.count("fine-tuning"), names.count("usual")) == expected


# ---------------------------------------------------------------- server

LID = {"a": 1.0, "b": 1.1, "c": 5.0, "d": 5.2, "e": 0.9}
MODEL = dict(zip("abcde", (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
SIZE = dict(zip("abcde", (1, 1, 2, 2, 4), strict=True))
LEVEL = {"c": 0.05, "d": 0.6}


def answer(task: str, client: str, lid: float | None = -1) -> Any:
    sent = weights(MODEL[client]), SIZE[client], 1.0
    if task == "visit":
        return Visited(*sent, lid=LID[client] if lid == -1 else lid)
    return TrainedOnCorrected(*sent, n_corrected=7) if task == "train" else Corrected(LEVEL[client], 3)


def federation(**settings: Any) -> FakeFederation:
    return FakeFederation("abcde", answer, **settings)


def first_state(**over: Any) -> FedCorrState:
    return FedCorrState(model=weights(0.0), **over)


def test_an_iteration_visits_everybody_in_turn_then_corrects_noisy_clients() -> None:
    fed = federation()
    state = fedcorr().round(1, first_state(), fed)
    visits = [page for page in fed.pages if page.task == "visit"]
    order = [client for page in visits for client in page.clients]
    assert len(visits) == 5 and sorted(order) == list("abcde")
    # Each begins where the one before ended.
    assert [page.payload["model"]["w"].item() for page in visits] == [0.0, *(MODEL[k] for k in order[:-1])]
    assert state.model["w"].item() == MODEL[order[-1]]
    correction = fed.pages[-1]
    assert (correction.task, sorted(correction.clients)) == ("correct", ["c", "d"])  # clean clients are never touched
    assert correction.payload["model"] == state.model
    assert (state.split.clean, state.split.noisy) == (("a", "b", "e"), ("c", "d"))
    assert state.noise_levels == {"a": 0.0, "b": 0.0, "e": 0.0, "c": 0.05, "d": 0.6}
    assert (fed.values["stage"], fed.values["lid"], fed.values["relabelled"]) == ("pre-processing", LID, 6)
    assert FedCorrState.from_tree(state.to_tree()) == state


def test_the_order_of_visits_is_drawn_from_the_rounds_stream() -> None:
    def order(seed: int) -> list[str]:
        fed = federation(random=KeyedRandom(seed))
        fedcorr().round(1, first_state(), fed)
        return [page.clients[0] for page in fed.pages if page.task == "visit"]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


def test_visits_at_once_are_averaged_by_samples() -> None:
    fed = federation()
    state = fedcorr(visits_at_once=5).round(1, first_state(), fed)
    assert [page.task for page in fed.pages] == ["visit", "correct"]
    assert state.model["w"].item() == pytest.approx((1 + 2 + 6 + 8 + 20) / 10)


def test_the_next_visit_is_told_the_noise_level_and_a_clean_clients_old_one_is_forgotten() -> None:
    fed = federation(absent=("d",))
    state = fedcorr().round(2, first_state(noise_levels={"a": 0.7, "d": 0.6}), fed)
    told = {k: own["noise_level"] for page in fed.pages if page.task == "visit" for k, own in page.each.items()}
    assert told == {"a": 0.7, "b": 0.0, "c": 0.0, "d": 0.6, "e": 0.0}
    assert state.noise_levels["a"] == 0.0


def test_dimensions_are_a_mean_over_a_clients_visits() -> None:
    before = first_state(lid_sums={"a": 5.0, "c": 9.0}, n_visits={"a": 1, "c": 2})
    fed = federation(participants=["a", "b", "d", "e"])
    state = fedcorr().round(2, before, fed)
    # a: (5 + 1) / 2; c was not visited this time and keeps 9 / 2.
    assert fed.values["lid"] == {"a": 3.0, "b": 1.1, "c": 4.5, "d": 5.2, "e": 0.9}
    assert state.n_visits == {"a": 2, "b": 1, "c": 2, "d": 1, "e": 1}
    assert "c" not in [k for page in fed.pages for k in page.clients]


def test_a_client_accused_in_its_absence_has_no_noise_level_of_the_time_when_it_was_clean() -> None:
    """Else it would be fine-tuned on; one that was accused before keeps what it told then."""
    before = first_state(
        split=ClientSplit(("a", "c"), ("d",), {}, {}, {}, None, has_two_groups=True),
        noise_levels={"a": 0.0, "c": 0.0, "d": 0.3},
        lid_sums={"c": 5.0, "d": 5.2},
        n_visits={"c": 1, "d": 1},
    )
    state = fedcorr().round(2, before, federation(participants=["a", "b", "e"]))
    assert state.split is not None and set(state.split.noisy) == {"c", "d"}
    assert state.noise_levels == {"a": 0.0, "b": 0.0, "d": 0.3, "e": 0.0}
    fed = federation()
    fedcorr().round(6, state, fed)
    assert (fed.pages[0].task, fed.pages[0].clients) == ("train", ["a", "b", "e"])


def test_who_cannot_be_assessed_is_neither_clean_nor_noisy_and_has_a_reason() -> None:
    fed = federation(absent=("e",))
    fed.reply = lambda task, client: answer(task, client, lid=None if client == "b" else -1)
    state = fedcorr().round(1, first_state(), fed)
    assert state.split.not_assessed == {"b": TOO_FEW, "e": NOT_VISITED}
    assert state.split.noisy == ("c", "d")
    assert sorted(fed.pages[-1].clients) == ["c", "d"]  # there is nothing to correct b's labels by
    assert fed.failures == {"e": DROPPED_OUT}


def test_pre_processing_that_assessed_nobody_ends_the_run_with_advice() -> None:
    nobody = federation(absent=tuple("abcde"))
    early = fedcorr().round(4, first_state(), nobody)  # there is another iteration to come
    assert early.split is not None and early.split.clean == ()
    with pytest.raises(MethodError, match=r"Round 5: .* raise method\.iterations or participation") as problem:
        fedcorr().round(5, early, nobody)
    assert "\n" not in str(problem.value)


def processed() -> FedCorrState:
    split = ClientSplit(("a", "b", "e"), ("c", "d"), {}, {}, {}, None, has_two_groups=True)
    return first_state(split=split, noise_levels={"a": 0.0, "b": 0.0, "e": 0.0} | LEVEL)


@pytest.mark.parametrize(
    ("settings", "present", "pool", "model"),
    [
        ({}, "abcde", ["a", "b", "c", "e"], (1 + 2 + 6 + 20) / 8),
        ({"clean_level": 0.0}, "abcde", ["a", "b", "e"], (1 + 2 + 20) / 6),
        ({}, "d", [], 0.0),  # without its clients it waits
    ],
)
def test_fine_tuning_takes_clients_up_to_the_clean_level(
    settings: dict[str, Any], present: str, pool: list[str], model: float
) -> None:
    fed = federation(participants=list(present))
    state = fedcorr(**settings).round(6, processed(), fed)
    assert [page.clients for page in fed.pages] == ([pool] if pool else [])
    assert all(page.payload == {"model": weights(0.0), "corrects": False} for page in fed.pages)
    assert state.model["w"].item() == pytest.approx(model)
    assert fed.values["n_fine_tuned"] == len(pool)


def test_usual_training_corrects_each_noisy_client_once_at_first_sight() -> None:
    fed = federation(participants=["a", "c"])
    state = fedcorr().round(56, processed(), fed)
    assert fed.pages[0].each == {"a": {"corrects": False}, "c": {"corrects": True}}
    assert state.finished == ["c"]
    assert state.model["w"].item() == pytest.approx((1 + 6) / 3)
    late = federation(absent=("d",))
    state = fedcorr().round(57, state, late)
    assert [k for k, own in late.pages[0].each.items() if own["corrects"]] == ["d"]
    assert state.finished == ["c"]  # d was asked but away
    assert fedcorr().round(58, state, federation()).finished == ["c", "d"]


# ---------------------------------------------------------------- client

START = weights_of(Tiny())


def visit(client: Client, noise_level: float = 0.0, **settings: Any) -> Visited:
    return fedcorr(**settings).visit(client, model=START, noise_level=noise_level)


def distance(reply: Visited) -> float:
    names = [name for name, _ in Tiny().named_parameters()]
    return sum((reply.model[name] - START[name]).square().sum().item() for name in names) ** 0.5


def test_a_visit_tells_the_dimension_and_keeps_the_losses(make_client: MakeClient) -> None:
    client = make_client(30)
    lid = visit(client).lid
    assert lid is not None and lid > 0
    assert client.state["losses"].shape == (30,)
    assert "corrected_labels" not in client.state
    assert [visit(make_client(n)).lid for n in (1, 2)] == [None, None]  # too few samples


@pytest.mark.parametrize("norm", ["plain", "squared"])
def test_the_noisier_the_nearer(norm: str, make_client: MakeClient) -> None:
    settings: dict[str, Any] = {"proximal_norm": norm, "lr": 0.01, "epochs": 3}
    free, held = (distance(visit(make_client(), level, **settings)) for level in (0.0, 1.0))
    assert held < free
    assert distance(visit(make_client(), 1.0, **settings | {"proximal_weight": 0.0})) == free


def test_norm_and_mixup_matter(make_client: MakeClient) -> None:
    found = {
        distance(visit(make_client(), 1.0, **settings))
        for settings in ({}, {"proximal_norm": "squared"}, {"mixup": False})
    }
    assert len(found) == 3


@pytest.mark.parametrize("accumulates", [True, False])
def test_losses_of_several_visits(accumulates: bool, make_client: MakeClient) -> None:
    first = make_client()
    visit(first)
    again = make_client(state={"losses": first.state["losses"] + 10})
    visit(again, accumulate_losses=accumulates)
    expected = first.state["losses"] * 2 + 10 if accumulates else first.state["losses"]
    assert torch.allclose(again.state["losses"], expected)


def test_published_losses_go_through_the_softmax_twice(make_client: MakeClient) -> None:
    published, once = make_client(), make_client()
    visit(published)
    visit(once, double_softmax=False)
    # log(Σ exp p) - p_y for ten classes lies within [log(e + 9) - 1, log(e + 9)].
    assert 1.461 <= published.state["losses"].min() <= published.state["losses"].max() <= 2.462
    assert once.state["losses"].max() > 2.462


def test_a_correction_takes_the_higher_half_of_the_higher_group(make_client: MakeClient) -> None:
    losses = torch.cat([torch.linspace(0.1, 0.2, 12), torch.linspace(3.0, 3.1, 8)])
    client = make_client(20, state={"losses": losses})
    reply = fedcorr().correct(client, model=always(7))
    expected = client.data.labels.clone()
    expected[16:] = 7  # 20 · 0.4 · 0.5 = 4 samples
    assert torch.equal(client.labels, expected)
    assert reply == Corrected(0.4, int((expected != client.data.labels).sum()))


def test_a_correction_builds_on_earlier_ones(make_client: MakeClient) -> None:
    earlier = torch.full((20,), 3)
    client = make_client(20, state={"losses": torch.ones(20), "corrected_labels": earlier})
    assert fedcorr().correct(client, model=always(7)).noise_level == 0.0
    assert torch.equal(client.labels, earlier)  # nothing is open, and nothing is undone


def test_the_last_correction_opens_all_labels_where_the_model_is_sure(make_client: MakeClient) -> None:
    client = make_client(20, state={"losses": torch.ones(20)})
    reply = fedcorr().train(client, model=always(7), corrects=True)
    assert client.labels.tolist() == [7] * 20
    assert reply.n_corrected == int((client.data.labels != 7).sum())
    assert "losses" not in client.state
    unsure = make_client(20)
    fedcorr(confidence=0.99).train(unsure, model=START, corrects=True)
    assert torch.equal(unsure.labels, unsure.data.labels)
    untouched = make_client(20)
    fedcorr().train(untouched, model=always(7), corrects=False)
    assert untouched.state == {}
