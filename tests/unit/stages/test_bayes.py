"""Stage II by Bayes: sums, the discriminant they make, and labels weighed by how noisy a client is."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedsir.stages.bayes import Temperature, likeliest_scores, symmetric, weigh_labels
from fedsir.stages.discriminant import (
    ClassMoments,
    class_moments,
    discriminant,
    discriminant_scores,
    on_the_wire,
    with_missing_classes,
)
from fedsir.stages.spectrum import Array, Labels

CENTRES = np.array([[4.0, 0, 0, 0], [0, 4.0, 0, 0], [0, 0, 4.0, 0]])


def clouds(n: int, seed: int = 0, classes: tuple[int, ...] = (0, 1, 2)) -> tuple[Array, Labels]:
    """Return features (n, 4) around one centre per class, standard deviation 1, and their true labels."""
    random = np.random.default_rng(seed)
    labels = random.choice(classes, n)
    return CENTRES[labels] + random.standard_normal((n, 4)), labels


def with_noise(labels: Labels, transition: Array, seed: int = 1) -> Labels:
    draws = np.random.default_rng(seed).random(len(labels))
    return (draws[:, None] > transition.cumsum(axis=1)[labels]).sum(axis=1)


def scores_of(features: Array) -> Array:
    return discriminant_scores(features, discriminant([class_moments(*clouds(3000, seed=9), 3)], shrinkage=0.01))


def test_moments_by_hand() -> None:
    features = np.array([[1.0, 0], [3, 0], [0, 2]])
    moments = class_moments(features, np.array([0, 0, 2]), 3)
    assert moments.counts.tolist() == [2, 0, 1]
    assert moments.sums.tolist() == [[4, 0], [0, 0], [0, 2]]
    assert moments.second_moment.tolist() == [[10, 0], [0, 4]]
    assert [array.dtype for array in astuple(on_the_wire(moments))] == [np.int64, np.float32, np.float32]


def test_moments_add_up_and_are_taken_away_again() -> None:
    features, labels = clouds(50)
    whole = class_moments(features, labels, 3)
    parts = [class_moments(features[rows], labels[rows], 3) for rows in (slice(0, 20), slice(20, 50))]
    for one, other in ((parts[0] + parts[1], whole), (whole - parts[1], parts[0])):
        for a, b in zip(astuple(one), astuple(other), strict=True):
            assert_allclose(a, b, atol=1e-9)


def test_the_discriminant_by_hand() -> None:
    # Two classes at ±2 on a line, variance 1 around each: s = m x - m²/2, and 1/n of the mean's distance back.
    moments = ClassMoments(np.array([4, 4]), np.array([[8.0], [-8.0]]), np.array([[6.0 + 4 * 4 + 4 * 4]]))  # type: ignore[arg-type]
    fitted = discriminant([moments], shrinkage=0.2)  # with one feature there is nothing to shrink to
    assert_allclose(fitted.weights, [[2.0], [-2.0]], rtol=1e-6)
    assert_allclose(fitted.biases, [-2 + 1 / 8, -2 + 1 / 8], rtol=1e-6)
    assert_allclose(discriminant_scores(np.array([[1.0]]), fitted), [[0.125, -3.875]], rtol=1e-6)


def test_the_discriminant_does_not_care_how_samples_are_dealt() -> None:
    features, labels = clouds(90)
    together = discriminant([class_moments(features, labels, 3)])
    owner = np.random.default_rng(3).integers(0, 4, 90)
    dealt = discriminant([class_moments(features[owner == k], labels[owner == k], 3) for k in range(4)])
    assert_allclose(dealt.weights, together.weights, rtol=1e-5)
    assert_allclose(dealt.biases, together.biases, rtol=1e-5)


def test_fewer_samples_than_features_can_be_inverted() -> None:
    features = np.random.default_rng(0).standard_normal((6, 40))
    fitted = discriminant([class_moments(features, np.array([0, 0, 0, 1, 1, 1]), 2)])
    assert np.isfinite(fitted.weights).all()
    # All features alike: no variance to divide by.
    flat = discriminant([class_moments(np.ones((4, 3)), np.array([0, 0, 1, 1]), 2)])
    assert np.isfinite(flat.biases).all()


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.6])
def test_the_noise_rate_is_found_and_labels_are_repaired(rate: float) -> None:
    features, true = clouds(1000)
    given_labels = with_noise(true, symmetric(rate, 3))
    found = weigh_labels(scores_of(features), given_labels)
    assert found.noise_rate == pytest.approx((given_labels != true).mean(), abs=0.03)
    assert (found.labels != true).mean() <= max(0.3 * rate, 0.005)
    assert_allclose(found.probabilities.sum(axis=1), 1)


def test_one_sided_noise_is_seen_in_the_transition() -> None:
    features, true = clouds(1500)
    transition = np.array([[0.6, 0.4, 0], [0, 1, 0], [0, 0, 1]])
    given_labels = with_noise(true, transition)
    found = weigh_labels(scores_of(features), given_labels)
    assert_allclose(found.transition, transition, atol=0.08)  # pulled towards symmetric noise by its prior
    assert (found.labels != true).mean() < 0.3 * (given_labels != true).mean()


def test_given_labels_that_say_nothing_are_not_listened_to() -> None:
    features, true = clouds(900)
    found = weigh_labels(scores_of(features), np.random.default_rng(5).integers(0, 3, 900))
    assert found.noise_rate == pytest.approx(2 / 3, abs=0.05)
    assert (found.labels == true).mean() > 0.95


def test_the_prior_is_the_clients_own() -> None:
    # Classes 0 and 1 can hardly be told apart by features; the client has next to nothing of class 1.
    random = np.random.default_rng(2)
    true = random.choice([0, 1, 2], 2000, p=[0.6, 0.05, 0.35])
    scores = np.eye(3)[true] * 2 + random.standard_normal((2000, 3)) * 2
    found = weigh_labels(scores, with_noise(true, symmetric(0.5, 3)))
    assert (found.labels == 1).mean() < 0.1


def test_a_class_that_nobody_clean_owns_keeps_its_labels_and_is_never_assigned() -> None:
    known_features, known = clouds(1000, seed=9, classes=(0, 1))
    fitted = discriminant([class_moments(known_features, known, 3)])
    assert fitted.is_owned.tolist() == [True, True, False]
    features, true = clouds(600)
    given_labels = with_noise(true, symmetric(0.3, 3))
    found = weigh_labels(discriminant_scores(features, fitted), given_labels)
    kept = given_labels == 2
    assert_array_equal(found.labels[kept], 2)
    assert not (found.labels[~kept] == 2).any()
    assert_array_equal(found.is_judged, ~kept)


def test_a_class_that_only_noisy_clients_own_is_corrected_by_what_their_labels_say_of_it() -> None:
    clean = class_moments(*clouds(1000, seed=9, classes=(0, 1)), 3)
    features, true = clouds(2000)
    given_labels = with_noise(true, symmetric(0.5, 3))
    noisy = class_moments(features, given_labels, 3)
    fitted = discriminant([with_missing_classes(clean, noisy.counts, noisy.sums)])
    assert fitted.is_owned.all()
    found = weigh_labels(discriminant_scores(features, fitted), given_labels)
    is_of_it = true == 2
    assert (given_labels[is_of_it] != 2).mean() > 0.45
    assert (found.labels[is_of_it] != 2).mean() < 0.05
    assert (found.labels[~is_of_it] == 2).mean() < 0.05


def test_classes_that_clean_clients_own_stay_theirs_and_few_noisy_samples_make_no_class() -> None:
    clean = class_moments(*clouds(300, classes=(0, 1)), 3)
    counts, sums = np.array([500, 500, 19]), np.full((3, 4), 7.0)
    assert with_missing_classes(clean, counts, sums) is clean
    more = with_missing_classes(clean, np.array([500, 500, 20]), sums)
    assert more.counts.tolist() == [*clean.counts[:2], 20]
    assert_array_equal(more.sums[:2], clean.sums[:2])
    assert_array_equal(more.sums[2], 7.0)
    weights = [discriminant([each]).weights[:2] for each in (clean, more)]
    assert_allclose(*weights, rtol=1e-5)  # the spread is still that of the clean clients' classes


def test_nothing_to_judge_keeps_everything() -> None:
    fitted = discriminant([class_moments(*clouds(100, classes=(0, 1)), 3)])
    found = weigh_labels(discriminant_scores(np.zeros((3, 4)), fitted), np.array([2, 2, 2]))
    assert found.labels.tolist() == [2, 2, 2]
    assert found.noise_rate is None
    one_class = discriminant([class_moments(*clouds(100, classes=(1,)), 3)])
    assert weigh_labels(discriminant_scores(np.zeros((2, 4)), one_class), np.array([1, 1])).noise_rate is None


BELIEF = Temperature(1.0, 1.0)


def two_looks(distances: tuple[float, float], rate: float, seed: int = 4) -> tuple[list[Array], Labels, Labels]:
    """Return scores of two looks at 1,500 samples whose classes lie so far apart, given labels, and true labels."""
    random = np.random.default_rng(seed)
    true = random.integers(0, 4, 1500)
    scores = [d * (d * np.eye(4)[true] + random.standard_normal((1500, 4))) for d in distances]
    return scores, with_noise(true, symmetric(rate, 4), seed), true


def wrong_after(scores: Array, given_labels: Labels, true: Labels) -> float:
    return float((weigh_labels(scores, given_labels, temperature=1.0).labels != true).mean())


@pytest.mark.parametrize("good", [0, 1])
def test_a_look_that_sees_nothing_is_not_taken(good: int) -> None:
    scores, given_labels, _ = two_looks((2.0, 2.0), 0.5)
    scores[1 - good] = np.random.default_rng(0).standard_normal(scores[0].shape)
    chosen = likeliest_scores([(s, BELIEF) for s in scores], given_labels)
    ratio = chosen / scores[good]
    assert_allclose(ratio, ratio[0, 0])
    assert 0.5 < ratio[0, 0] < 2  # these scores are log-likelihoods, so they can be trusted as they are


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_two_looks_that_see_different_things_are_taken_together(rate: float) -> None:
    scores, given_labels, true = two_looks((1.3, 1.3), rate)
    chosen = likeliest_scores([(s, BELIEF) for s in scores], given_labels)
    alone = [wrong_after(s, given_labels, true) for s in scores]
    assert wrong_after(chosen, given_labels, true) < 0.85 * min(alone)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rate=st.floats(0, 0.9), far=st.floats(0, 3), near=st.floats(0, 3))
def test_it_does_not_matter_which_look_comes_first(seed: int, rate: float, far: float, near: float) -> None:
    scores, given_labels, _ = two_looks((far, near), rate, seed)
    looks = [(s, BELIEF) for s in scores]
    assert_allclose(likeliest_scores(looks, given_labels, 200), likeliest_scores(looks[::-1], given_labels, 200))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), rate=st.floats(0, 0.9), shift=st.floats(-50, 50))
def test_neither_order_nor_names_nor_a_shift_of_the_scores_matter(seed: int, rate: float, shift: float) -> None:
    random = np.random.default_rng(seed)
    n, n_classes = int(random.integers(2, 60)), int(random.integers(2, 6))
    true = random.integers(0, n_classes, n)
    scores = 3 * np.eye(n_classes)[true] + random.standard_normal((n, n_classes))
    given_labels = with_noise(true, symmetric(rate, n_classes), seed)
    found = weigh_labels(scores, given_labels)
    assert ((found.probabilities >= 0) & (found.probabilities <= 1 + 1e-12)).all()
    order, names = random.permutation(n), random.permutation(n_classes)
    other = weigh_labels(scores[order][:, names] + shift, np.argsort(names)[given_labels[order]])
    assert_allclose(other.probabilities, found.probabilities[order][:, names], atol=1e-6)
    assert other.noise_rate == pytest.approx(found.noise_rate, abs=1e-6)


def test_a_mean_is_worth_its_samples_however_little_each_of_them_counts() -> None:
    one, other = (class_moments(np.eye(2)[:, :1], np.array([0, 1]), 2) for _ in range(2))
    alike = one.weighted(0.1) + other.weighted(0.1)
    np.testing.assert_allclose(alike.counts, [0.2, 0.2])
    np.testing.assert_allclose(alike.worth, [2, 2])
    np.testing.assert_allclose((alike - other.weighted(0.1)).worth, [1, 1])
    np.testing.assert_allclose((one.weighted(1) + other.weighted(0.5)).worth, [1.5**2 / 1.25] * 2)
    np.testing.assert_allclose((one.weighted(0.5) + other).worth, [1.5**2 / 1.25] * 2)
    np.testing.assert_allclose(alike.weighted(3).worth, alike.worth)


def test_weights_that_all_clients_share_change_no_discriminant() -> None:
    features, labels = np.random.default_rng(0).normal(size=(400, 5)), np.arange(400) % 3
    sums = class_moments(features, labels, 3)
    plain, light = discriminant([sums]), discriminant([sums.weighted(0.25)])
    np.testing.assert_allclose(light.weights, plain.weights, rtol=0.02, atol=1e-3)  # degrees of freedom are counted
    np.testing.assert_allclose(light.biases, plain.biases, rtol=0.02, atol=1e-3)
