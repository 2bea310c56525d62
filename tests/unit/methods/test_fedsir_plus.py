"""FedSIR's preset `plus`: who is noisy, when it relabels, what it sends, and how models are weighed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fake_federation import FakeFederation, weights
from fedsir.methods.bayes_relabelling import Summed
from fedsir.methods.fedsir import FedSIR, FedSIRState, Repaired, Taught
from fedsir.methods.replies import Trained
from fedsir.methods.spectral_identification import Described, Identified, Judged
from fedsir.stages.bayes import TEMPERATURES
from fedsir.stages.discriminant import ClassMoments, class_moments
from fedsir.stages.noise_rates import NoiseRate
from fedsir.stages.split import ClientSplit


def plus(**settings: Any) -> FedSIR:
    return FedSIR(preset="plus", **settings).resolved(20)


def state_of(clean: str, noisy: str) -> FedSIRState:
    split = ClientSplit(tuple(clean), tuple(noisy), {}, {}, {}, None, has_two_groups=True)
    return FedSIRState(model=weights(50.0), split=split, clean_reference=weights(40.0))


def sums(shift: float = 0.0) -> ClassMoments:
    """Return what a client with two samples of each of two classes sends."""
    features = np.array([[3.0 + shift, 1], [3 + shift, -1], [-3 + shift, 1], [-3 + shift, -1]])
    return class_moments(features, np.array([0, 0, 1, 1]), 2)


def federation(rates: dict[str, float], doubt: float | None = 0.5) -> FakeFederation:
    """Answer a round: clean clients teach, noisy ones have these noise rates."""

    def reply(task: str, client: str) -> Taught | Repaired:
        if task == "train_clean":
            return Taught(weights(1.0), 2, 1.0, spectra=None, moments=sums())
        return Repaired(weights(2.0), 4, 1.0, 2, 1, noise_rate=rates.get(client), doubt=doubt)

    return FakeFederation("abcd", reply)


def test_it_relabels_in_every_second_round_from_the_first_on() -> None:
    assert [t for t in range(1, 8) if plus().relabels_in(t)] == [1, 3, 5, 7]


def test_a_relabel_round_sends_a_discriminant_and_no_second_model() -> None:
    fed = federation({"c": 0.6, "d": 0.4})
    plus().round(1, state_of("ab", "cd"), fed)
    clean = fed.asked["train_clean"].payload
    assert (clean["wants_spectra"], clean["spectra_model"]) == (True, None)
    noisy = fed.asked["train_noisy"].payload
    assert noisy["clean_reference"] is None
    assert set(noisy["references"]) == {"weights", "biases", "is_owned"}
    assert noisy["references"]["weights"][0, 0] > 0 > noisy["references"]["weights"][1, 0]
    assert fed.values["noise_rate_by_client"] == {"c": 0.6, "d": 0.4}


def test_nobody_distils_unless_asked_to() -> None:
    fed = federation({})
    plus().round(20, state_of("ab", "cd"), fed)
    assert fed.asked["train_noisy"].payload["kd_weight"] == 0
    plus(kd={"enabled": True}).round(20, state_of("ab", "cd"), fed)
    assert fed.asked["train_noisy"].payload["kd_weight"] == 0.2


def rate_of(rate: float) -> NoiseRate:
    return NoiseRate(rate, 0.02, float(rate > 0.05), 100, np.zeros(len(TEMPERATURES)))


def stage_one(rates: dict[str, NoiseRate | None]) -> tuple[FakeFederation, FedSIRState]:
    """Run Stage I on clients with these noise rates; each trains to a model of its own, a: 0, b: 1, …"""

    def reply(task: str, client: str) -> Identified | Described | Judged:
        if task == "identify":
            return Identified(0.5, 0.3, 2, 2, 1.0, weights(float("abcd".index(client))))
        return Described(sums()) if task == "describe" else Judged(rates[client])

    fed = FakeFederation("abcd", reply)
    return fed, plus().start(fed, weights(7.0))


def test_stage_one_judges_everybody_by_the_others_under_one_model() -> None:
    clean, noisy = rate_of(0.01), rate_of(0.6)
    fed, state = stage_one({"a": clean, "b": noisy, "c": clean, "d": noisy})
    assert state.split is not None
    assert (state.split.clean, state.split.noisy) == (("a", "c"), ("b", "d"))
    assert fed.asked["describe"].payload["model"]["w"].tolist() == [1.5]  # the mean of 0, 1, 2, 3
    assert set(fed.asked["judge"].each) == set("abcd")
    judged = [page for page in fed.pages if page.task == "judge"]
    assert [page.task for page in fed.pages] == ["identify", "describe", *(page.task for page in judged)]
    # The second search changes nothing, so the verdict comes.
    assert [page.payload["belief"] for page in judged] == ["search", "search", "verdict"]
    assert fed.values["noise_rate_by_client"] == {"a": 0.01, "b": 0.6, "c": 0.01, "d": 0.6}
    assert state.model["w"].tolist() == [1.0]  # the clean clients' average
    assert "note" not in fed.values


def test_with_pretrained_weights_everybody_is_judged_before_anybody_trains_and_then_clean_clients_train() -> None:
    rates = dict(zip("abcd", map(rate_of, (0.01, 0.6, 0.01, 0.6)), strict=True))

    def reply(task: str, client: str) -> Identified | Described | Judged | Trained:
        if task == "identify":
            return Identified(0.5, 0.3, 2, 2, None, None)
        if task == "warm_up":
            return Trained(weights(float("abcd".index(client))), 2, 1.0)
        return Described(sums()) if task == "describe" else Judged(rates[client])

    fed = FakeFederation("abcd", reply)
    method = FedSIR(preset="plus").resolved(20, is_pretrained=True)
    state = method.start(fed, weights(7.0))
    assert [page.task for page in fed.pages] == ["identify", "describe", "judge", "judge", "judge", "warm_up"]
    assert all(page.payload["model"]["w"].tolist() == [7.0] for page in fed.pages), "the initial model"
    assert fed.asked["warm_up"].clients == ["a", "c"]
    assert state.split is not None and state.split.noisy == ("b", "d")
    assert state.model["w"].tolist() == [1.0]  # the mean of 0 and 2
    assert state.clean_reference is state.model


def test_where_everybody_is_noisy_the_least_noisy_teaches_and_a_note_says_so() -> None:
    fed, state = stage_one({k: rate_of(rate) for k, rate in zip("abcd", (0.5, 0.3, 0.6, 0.6), strict=True)})
    assert state.split is not None and state.split.clean == ("b",)
    assert "client b, the least noisy with 30% wrong labels" in fed.values["note"]


def test_who_cannot_be_judged_is_not_assessed() -> None:
    rates = dict.fromkeys("abc", rate_of(0.0)) | {"d": None}
    _, state = stage_one(rates)
    assert state.split is not None and list(state.split.not_assessed) == ["d"]
    assert "fewer than 20 samples" in state.split.not_assessed["d"]


def test_where_nobody_can_be_judged_clients_are_compared_as_before_and_a_note_says_so() -> None:
    fed, state = stage_one(dict.fromkeys("abcd"))
    assert state.split is not None and state.split.clean == ("a", "b", "c", "d")
    assert state.split.not_assessed == {}
    assert "too few samples to estimate noise rates" in fed.values["note"]


def test_models_count_by_the_labels_that_are_likely_right() -> None:
    fed = federation({"c": 0.6, "d": 0.6}, doubt=0.25)
    plus().round(1, state_of("ab", "cd"), fed)
    assert fed.values["shares"] == {"a": 0.2, "b": 0.2, "c": 0.3, "d": 0.3}  # 2, 2, 4 · 0.75, 4 · 0.75 of 10


def test_before_any_label_is_corrected_stage_one_says_how_many_are_wrong() -> None:
    fed = federation({}, doubt=None)
    state = state_of("ab", "cd")
    assert state.split is not None
    judged = replace(state, split=replace(state.split, noise_rates={"c": 0.5}))
    plus(relabel={"enabled": False}).round(1, judged, fed)
    assert fed.values["shares"] == {"a": 0.2, "b": 0.2, "c": 0.2, "d": 0.4}  # 2, 2, 4 · 0.5, 4 of 10


def test_a_clean_client_without_sums_does_not_teach() -> None:
    fed = federation({})
    answer: Callable[[str, str], Any] = fed.reply
    fed.reply = lambda task, k: (
        replace(answer(task, k), moments=None) if (task, k) == ("train_clean", "b") else answer(task, k)
    )
    plus().round(3, state_of("ab", "cd"), fed)
    assert fed.failures == {"b": "it sent no sums of its features"}
    assert fed.asked["train_noisy"].payload["references"] is not None


def with_second_opinion(probabilities: dict[str, float]) -> FakeFederation:
    """Answer a round in which noisy clients say how likely they are noisy."""
    fed = federation({})
    answer: Callable[[str, str], Any] = fed.reply
    fed.reply = lambda task, k: (
        replace(answer(task, k), probability_noisy=probabilities.get(k)) if task == "train_noisy" else answer(task, k)
    )
    return fed


def test_a_client_that_relabelling_finds_clean_counts_as_clean_from_then_on() -> None:
    state = state_of("b", "cd")
    assert state.split is not None
    state = replace(state, split=replace(state.split, not_assessed={"a": "too few"}, posterior_noisy={"c": 0.95}))
    fed = with_second_opinion({"a": 0.02, "c": 0.2, "d": 0.99})
    after = plus().round(1, state, fed).split
    assert after is not None
    assert (after.clean, after.noisy, after.not_assessed) == (("a", "b"), ("c", "d"), {})
    assert after.posterior_noisy == {"c": 0.95, "a": 0.02}
    assert "client a counts as clean from now on" in fed.values["note"]


def test_nobody_changes_sides_without_being_sure() -> None:
    state = state_of("ab", "cd")
    fed = with_second_opinion({"c": 0.1, "d": 1.0})
    assert plus().round(1, state, fed).split is state.split
    assert "note" not in fed.values


def test_a_client_that_counts_as_clean_trains_on_its_given_labels(make_client: Callable[..., Any]) -> None:
    client, other = make_client(), make_client()
    n = len(client.data)
    client.state = {
        "corrected_labels": torch.zeros(n, dtype=torch.int64),
        "label_probabilities": torch.ones(n, 10) / 10,
    }
    model = client.new_module().state_dict()
    losses = [plus().train_clean(who, model, wants_spectra=False, spectra_model=None).loss for who in (client, other)]
    assert losses[0] == losses[1]
    assert client.n_corrected == 0


def lacking_a_class(of_noisy: Callable[[str], Summed]) -> FakeFederation:
    """Answer a round in which the clean clients have no sample of the last of three classes."""
    features = np.array([[3.0, 1], [3, -1], [-3, 1], [-3, -1]])

    def reply(task: str, client: str) -> Taught | Repaired | Summed:
        if task == "train_clean":
            return Taught(weights(1.0), 2, 1.0, moments=class_moments(features, np.array([0, 0, 1, 1]), 3))
        return of_noisy(client) if task == "sum_classes" else Repaired(weights(2.0), 4, 1.0, 2, 1)

    return FakeFederation("abcd", reply)


def test_a_class_that_no_clean_client_owns_is_asked_of_the_noisy_ones() -> None:
    theirs = Summed(np.array([0, 0, 15]), np.array([[0, 0], [0, 0], [0, 90.0]], np.float32))
    fed = lacking_a_class(lambda _: theirs)
    plus().round(1, state_of("ab", "cd"), fed)
    asked = fed.asked["sum_classes"]
    assert (asked.clients, asked.payload["classes"].tolist()) == (["c", "d"], [False, False, True])
    assert asked.payload["model"]["w"].tolist() == [50.0], "the global model, as for the clean clients' sums"
    references = fed.asked["train_noisy"].payload["references"]
    assert references["is_owned"].all()
    assert references["weights"][2, 1] > 0  # its mean is (0, 6)


def test_sums_of_other_features_are_left_out_and_too_few_samples_make_no_class() -> None:
    def of_noisy(client: str) -> Summed:
        n_features = 2 if client == "c" else 5
        return Summed(np.array([0, 0, 15]), np.ones((3, n_features), np.float32))

    fed = lacking_a_class(of_noisy)
    plus().round(1, state_of("ab", "cd"), fed)
    assert fed.failures == {"d": "its sums have 5 features, the clean clients' have 2"}
    assert fed.asked["train_noisy"].payload["references"]["is_owned"].tolist() == [True, True, False]


def test_where_clean_clients_own_every_class_nobody_else_is_asked() -> None:
    fed = federation({})
    plus().round(1, state_of("ab", "cd"), fed)
    assert "sum_classes" not in fed.asked


def test_a_noisy_client_sums_by_the_labels_it_has_now(make_client: Callable[..., Any]) -> None:
    client = make_client(n=6, labels=[0, 1, 1, 2, 2, 2])
    client.state = {"corrected_labels": torch.tensor([1, 1, 1, 2, 2, 9])}
    wanted = torch.tensor([False, True, True] + [False] * 6 + [True])
    model = client.new_module().state_dict()
    all_of_them = plus().sum_classes(client, model, wanted)
    assert all_of_them.counts.tolist() == [0, 3, 2, 0, 0, 0, 0, 0, 0, 1]
    assert all_of_them.fault() is None
    some = plus(min_class_samples=2).sum_classes(client, model, wanted)
    assert some.counts.tolist() == [0, 3, 2, 0, 0, 0, 0, 0, 0, 0]
    assert some.sums[9].tolist() == [0] * some.sums.shape[1]
    assert np.array_equal(some.sums[1:3], all_of_them.sums[1:3])
    only_one = plus().sum_classes(make_client(n=3, labels=[1, 1, 1]), model, wanted)
    del client.state["corrected_labels"]
    assert plus().sum_classes(client, model, wanted).counts.tolist() == [0, 2, 3, 0, 0, 0, 0, 0, 0, 0]
    assert np.allclose(only_one.sums[1], all_of_them.sums[1], rtol=1e-5), "the same three images"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"counts": np.array([-1, 4])}, "negative"),
        ({"second_moment": -np.eye(2)}, "not a sum of squares"),
        ({"second_moment": np.array([[1.0, 9], [0, 1]])}, "not a sum of squares"),
    ],
)
def test_sums_that_cannot_be_are_a_fault(change: dict[str, Any], fault: str) -> None:
    found = Taught(weights(0.0), 1, 1.0, None, replace(sums(), **change)).fault()
    assert found is not None and fault in found
    assert Taught(weights(0.0), 1, 1.0, None, sums()).fault() is None


def test_soft_targets_are_what_a_noisy_client_trains_on(make_client: Callable[..., Any]) -> None:
    client = make_client()
    n, n_classes = len(client.data), client.data.n_classes
    model = client.new_module().state_dict()
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(n, n_classes, generator=generator)
    probabilities /= probabilities.sum(dim=1, keepdim=True)
    remembered = {
        "label_probabilities": probabilities,
        "corrected_labels": probabilities.argmax(dim=1),
        "noise_rate": torch.tensor(0.5),
    }
    replies = {}
    for targets in ("soft", "hard"):
        client.state = dict(remembered)
        method = plus(relabel={"targets": targets})
        replies[targets] = method.train_noisy(client, model, kd_weight=0.0, references=None, clean_reference=None)
    assert replies["soft"].loss != replies["hard"].loss
    assert replies["soft"].doubt == pytest.approx(1 - float(probabilities.amax(dim=1).mean()))
    assert replies["soft"].noise_rate is None, "it was not estimated in this round"


@pytest.mark.parametrize(
    ("settings", "is_pretrained", "trains_first", "warms_up"),
    [
        ({}, False, True, False),
        ({}, True, False, True),
        ({"identify": {"judged_by": "trained"}}, True, True, False),
        ({"identify": {"judged_by": "initial"}}, False, False, True),
        ({"identify": {"epochs": 0}}, True, False, False),
        ({"identify": {"split": "always"}}, True, True, False),
    ],
)
def test_who_trains_in_stage_one(
    settings: dict[str, Any], is_pretrained: bool, trains_first: bool, warms_up: bool
) -> None:
    for share in ("all", "minimal"):
        config = FedSIR(preset="plus", share=share, **settings).resolved(20, is_pretrained=is_pretrained).config
        assert (config.trains_first, config.warms_up) == (trains_first, warms_up)
        assert config.hands_over == (share == "minimal" and settings.get("identify", {}).get("split") == "always")


def test_identify_trains_nobody_where_the_initial_model_judges(make_client: Callable[..., Any]) -> None:
    client = make_client()
    model = client.new_module().state_dict()
    judging_first = FedSIR(preset="plus").resolved(20, is_pretrained=True)
    found = judging_first.identify(client, model)
    assert (found.model, found.loss) == (None, None)
    warm = judging_first.warm_up(client, model)
    assert warm.loss is not None and any((warm.model[name] != model[name]).any() for name in model)
