"""Stage I by noise rates: every client is judged by what the others' classes look like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsir.stages.bayes import TEMPERATURES, symmetric
from fedsir.stages.discriminant import class_moments
from fedsir.stages.leave_one_out import Others
from fedsir.stages.noise_rates import (
    Belief,
    NoiseRate,
    discriminants_of_others,
    first_trust,
    judge_each_other,
    judged,
    split_by_noise_rates,
    trust_by_rate,
)
from fedsir.stages.spectrum import Array, Labels
from fedsir.stages.split import OffDiagonal

Client = tuple[Array, Labels, Labels]


def clients(rates: list[float], n: int = 300, n_classes: int = 4, seed: int = 0, spread: float = 1.0) -> list[Client]:
    """Return features, given and true labels of clients with these noise rates; class means are 3 apart."""
    random = np.random.default_rng(seed)
    made = []
    for rate in rates:
        true = random.integers(0, n_classes, n)
        features = 3 * np.eye(n_classes + 2)[true] + spread * random.standard_normal((n, n_classes + 2))
        draws = random.random(n)[:, None] > symmetric(rate, n_classes).cumsum(axis=1)[true]
        made.append((features, draws.sum(axis=1), true))
    return made


def rates_of(federation: list[Client], n_classes: int = 4) -> dict[str, NoiseRate | None]:
    samples = {str(k): (x, y) for k, (x, y, _) in enumerate(federation)}
    return judged(Others(samples, n_classes), dict.fromkeys(samples, OffDiagonal(0.5, 0.3, n_classes)))[0]


def rate_of(rate: float, probability: float | None = None) -> NoiseRate:
    return NoiseRate(
        rate, 0.02, float(rate > 0.05) if probability is None else probability, 100, np.zeros(len(TEMPERATURES))
    )


def test_rates_are_found_though_nobody_is_known_to_be_clean() -> None:
    wanted = [0.0, 0.6, 0.3, 0.0, 0.6, 0.1]
    federation = clients(wanted)
    rates = rates_of(federation)
    for (_, given_labels, true), rate in zip(federation, rates.values(), strict=True):
        assert rate is not None and rate.n_judged == 300
        assert rate.rate == pytest.approx((given_labels != true).mean(), abs=0.04)
    assert split_by_noise_rates(rates, {}).noisy == ("1", "2", "4", "5")


def test_later_passes_see_through_a_noisy_majority() -> None:
    federation = clients([0.0, 0.75, 0.75, 0.75, 0.75, 0.0], n=120, spread=1.5)
    last = split_by_noise_rates(rates_of(federation), {})
    assert last.clean == ("0", "5")


def shared(n_noisy: int, rate: float, n: int = 400, n_classes: int = 4, seed: int = 0) -> list[Client]:
    """Return ten clients of which the first mistake every class for the next one with this rate."""
    random, made = np.random.default_rng(seed), []
    for k, (features, _, true) in enumerate(clients([0.0] * 10, n, n_classes, seed)):
        is_wrong = random.random(n) < (rate if k < n_noisy else 0.0)
        made.append((features, np.where(is_wrong, (true + 1) % n_classes, true), true))
    return made


@pytest.mark.parametrize("n_noisy", [1, 5, 8])
def test_noise_that_most_clients_share_is_not_taken_for_the_truth(n_noisy: int) -> None:
    federation = shared(n_noisy, 0.4)
    rates = rates_of(federation)
    assert split_by_noise_rates(rates, {}).noisy == tuple(str(k) for k in range(n_noisy))
    for (_, given_labels, true), rate in zip(federation, rates.values(), strict=True):
        assert rate is not None and rate.rate == pytest.approx((given_labels != true).mean(), abs=0.06)


def test_a_standard_error_shrinks_with_the_samples_and_is_about_right() -> None:
    few, many = (rates_of(clients([0.0, 0.3, 0.0], n=n))["1"] for n in (100, 1600))
    assert few is not None and many is not None
    assert few.standard_error / many.standard_error == pytest.approx(4, rel=0.3)
    found = [rates_of(clients([0.0, 0.3, 0.0], n=100, seed=seed))["1"] for seed in range(40)]
    errors = [rate.rate - 0.3 for rate in found if rate is not None]
    assert np.std(errors) == pytest.approx(few.standard_error, rel=0.4)


def test_the_verdict_needs_a_rate_above_the_limit_without_much_doubt() -> None:
    rates = {"sure": rate_of(0.10, 0.95), "unsure": rate_of(0.10, 0.8), "low": rate_of(0.04, 0.1), "few": None}
    split = split_by_noise_rates(rates, {}, missing={"away": "dropped out"})
    assert (split.noisy, split.clean) == (("sure",), ("unsure", "low"))
    assert split.has_two_groups and not split.is_forced
    assert split.statistics["sure"] == (0.10, 0.02)
    assert split.posterior_noisy == {"sure": 0.95, "unsure": 0.8, "low": 0.1}
    assert list(split.not_assessed) == ["away", "few"]


def similar(*means: float) -> dict[str, OffDiagonal]:
    """Return the two numbers of clients a, b, … whose classes are this similar on average."""
    return {k: OffDiagonal(mean, mean**2, 4) for k, mean in zip("abcdefgh", means, strict=False)}


def test_who_has_no_rate_is_judged_by_class_similarities_where_they_show_two_groups() -> None:
    apart = similar(0.30, 0.31, 0.32, 0.33, 0.80, 0.81, 0.82, 0.83)
    rates = {k: rate_of(0.0 if k < "e" else 0.6) for k in apart} | {"b": None, "h": None}
    split = split_by_noise_rates(rates, apart)
    assert (split.clean, split.noisy) == (tuple("abcd"), tuple("efgh"))
    assert split.not_assessed == {}
    assert set(split.noise_rates) == set("acdefg"), "a rate is not made up"
    assert split.posterior_noisy["b"] < 0.01 and split.posterior_noisy["h"] > 0.99


def test_without_two_groups_who_has_no_rate_is_not_assessed() -> None:
    alike = similar(0.30, 0.31, 0.32, 0.33)
    rates = {k: rate_of(0.0) for k in alike} | {"b": None}
    split = split_by_noise_rates(rates, alike)
    assert split.clean == tuple("acd")
    assert list(split.not_assessed) == ["b"] and "fewer than 20 samples" in split.not_assessed["b"]


def test_where_nobody_has_a_rate_class_similarities_decide_and_a_note_says_so() -> None:
    apart = similar(0.30, 0.31, 0.32, 0.33, 0.80, 0.81, 0.82, 0.83)
    split = split_by_noise_rates(dict.fromkeys(apart), apart, missing={"away": "dropped out"})
    assert (split.clean, split.noisy) == (tuple("abcd"), tuple("efgh"))
    assert split.not_assessed == {"away": "dropped out"} and split.noise_rates == {}
    assert "too few samples to estimate noise rates" in split.note


def test_without_a_wrong_label_the_probability_is_small_however_few_the_samples() -> None:
    for n, most in ((120, 0.2), (400, 0.001)):
        found = rates_of(clients([0.0, 0.0, 0.0], n=n))
        assert all(rate is not None and rate.probability_noisy < most for rate in found.values())


def test_nobody_noisy_is_one_group_and_everybody_noisy_leaves_a_teacher() -> None:
    alike = split_by_noise_rates({k: rate_of(0.0) for k in "abc"}, {})
    assert (alike.clean, alike.noisy, alike.has_two_groups) == (("a", "b", "c"), (), False)
    bad = split_by_noise_rates({k: rate_of(rate) for k, rate in zip("abc", (0.5, 0.4, 0.6), strict=True)}, {})
    assert (bad.clean, bad.noisy) == (("b",), ("a", "c"))
    assert split_by_noise_rates({}, {}).clean == ()


def test_classes_that_the_others_hardly_have_are_not_judged() -> None:
    federation = clients([0.0, 0.0, 0.0])
    features, labels, true = federation[0]
    federation[1:] = [(x[y < 3], y[y < 3], t[y < 3]) for x, y, t in federation[1:]]  # class 3 is client 0's alone
    rate = rates_of([(features, labels, true), *federation[1:]])["0"]
    assert rate is not None and rate.n_judged == int((labels < 3).sum())
    only_own = labels == 3
    alone = rates_of([(features[only_own], labels[only_own], true[only_own]), *federation[1:]])
    assert alone["0"] is None


def test_the_first_pass_trusts_everybody_unless_two_groups_are_convincing() -> None:
    def sent(*means: float) -> dict[str, OffDiagonal]:
        return {str(k): OffDiagonal(mean, mean**2, 4) for k, mean in enumerate(means)}

    assert set(first_trust(sent(0.50, 0.52, 0.55, 0.58)).values()) == {1.0}
    apart = first_trust(sent(0.30, 0.31, 0.32, 0.80, 0.81, 0.82, 0.83, 0.84, 0.85, 0.82))
    assert [k for k, trust in apart.items() if trust] == ["0", "1", "2"]


def test_it_searches_with_enough_samples_for_the_features_only() -> None:
    def beliefs(samples_per_feature: float, n_clients: int = 2) -> list[str]:
        asked = []

        def ask(trust: object, temperature: object, belief: Belief) -> dict[str, NoiseRate | None]:
            asked.append(belief.name)
            return {"a": rate_of(0.0), "b": rate_of(0.3)}

        clients = [chr(ord("a") + k) for k in range(n_clients)]
        judge_each_other(ask, dict.fromkeys(clients, OffDiagonal(0.5, 0.3, 4)), samples_per_feature)
        return asked

    assert beliefs(8.0) == ["search", "search", "verdict"]  # the second pass changes nothing
    assert beliefs(7.9) == ["careful", "careful"]
    assert beliefs(18.0, n_clients=20)[0] == "search"
    assert beliefs(17.9, n_clients=20) == ["careful", "careful"]  # each client has too few


def test_later_passes_trust_by_rate() -> None:
    assert trust_by_rate({"a": rate_of(0.0), "b": rate_of(0.5), "c": None}) == {"a": 1.0, "b": 0.5**8, "c": 1.0}


def test_a_single_client_has_nobody_to_be_judged_by() -> None:
    assert discriminants_of_others({"a": class_moments(np.ones((3, 2)), np.array([0, 1, 1]), 2)}, {"a": 1.0}) == {}


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_neither_order_nor_names_of_clients_and_classes_matter(seed: int) -> None:
    random = np.random.default_rng(seed)
    federation = clients([0.0, 0.4, 0.0, 0.7], n=200, seed=seed)
    rates = rates_of(federation)
    order, names = random.permutation(4), random.permutation(4)
    shuffled = rates_of([(federation[k][0], names[federation[k][1]], federation[k][2]) for k in order])
    for place, k in enumerate(order.tolist()):
        one, other = rates[str(k)], shuffled[str(place)]
        assert one is not None and other is not None
        assert other.rate == pytest.approx(one.rate, abs=1e-6)
