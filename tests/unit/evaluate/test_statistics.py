"""Bootstrap intervals over test images."""

import math

import numpy as np
import pytest

from fedsir.evaluate.statistics import bootstrap_half_width, paired_difference


def outcomes(n_right: int, n: int) -> np.ndarray:
    return np.arange(n) < n_right


@pytest.mark.parametrize(("accuracy", "points"), [(0.8521, 0.70), (0.689, 0.91), (0.4024, 0.96)])
def test_half_width_is_that_of_the_published_tables(accuracy, points):
    correct = outcomes(round(accuracy * 10_000), 10_000)
    half_width = 100 * bootstrap_half_width(correct)
    assert half_width == pytest.approx(points, abs=0.02)
    assert half_width == pytest.approx(196 * math.sqrt(accuracy * (1 - accuracy) / 10_000), abs=0.02)


def test_three_images_by_hand():
    # Two of three right: the number right in a resample is Binomial(3, 2/3), that is 0, 1, 2, 3 with
    # probability 1/27, 6/27, 12/27, 8/27. P(0) = 0.037 > 0.025, so the 2.5 % point is 0 and the other 3.
    assert bootstrap_half_width(np.array([True, False, True])) == 0.5


def test_half_width_agrees_with_resampling_the_images_themselves():
    correct = outcomes(130, 200)
    indices = np.random.default_rng(0).integers(200, size=(20_000, 200))
    low, high = np.quantile(correct[indices].mean(axis=1), [0.025, 0.975])
    # Accuracies lie on a grid of 1/200; two estimates of one quantile may fall on neighbouring points.
    assert bootstrap_half_width(correct) == pytest.approx((high - low) / 2, abs=1 / 200 + 1e-12)
    assert bootstrap_half_width(correct[::-1]) == bootstrap_half_width(correct)  # only how many are right matters


@pytest.mark.parametrize("is_right", [True, False])
def test_all_right_or_all_wrong_has_no_width(is_right):
    assert bootstrap_half_width(np.full(7, is_right)) == 0.0


def test_identical_models_differ_by_exactly_nothing():
    correct = outcomes(689, 1000)
    difference = paired_difference(correct, correct.copy())
    assert (difference.mean, difference.low, difference.high) == (0.0, 0.0, 0.0)
    assert difference.is_significant is False


def test_paired_difference_by_hand():
    # Image by image: 0, +1, 0. Mean 1/3. The number of +1 in a resample is Binomial(3, 1/3): 0, 1, 2, 3
    # with probability 8/27, 12/27, 6/27, 1/27 = 0.037 > 0.025: the interval is 0 … 3 of 3 and touches zero.
    difference = paired_difference(np.array([True, True, False]), np.array([True, False, False]))
    assert difference.mean == pytest.approx(1 / 3)
    assert (difference.low, difference.high) == (0.0, 1.0)
    assert difference.is_significant is False


def test_a_difference_in_every_image_is_certain():
    difference = paired_difference(np.array([True, True, True]), np.array([False, False, False]))
    assert (difference.mean, difference.low, difference.high) == (1.0, 1.0, 1.0)
    assert difference.is_significant is True


def test_swapping_the_models_turns_the_sign():
    better, worse = outcomes(800, 1000), outcomes(700, 1000)
    forward, backward = paired_difference(better, worse), paired_difference(worse, better)
    assert (forward.mean, backward.mean) == (0.1, -0.1)
    assert forward.is_significant is True
    assert backward.is_significant is True
    assert backward.low == pytest.approx(-forward.high, abs=0.002)
    assert backward.high == pytest.approx(-forward.low, abs=0.002)


def test_pairing_makes_a_small_difference_visible():
    # 20 images more right, none less. Unpaired, 1.96·sqrt(2·0.8·0.2/1000) = 3.5 points would hide these 2.
    correct_b = outcomes(800, 1000)
    nested = paired_difference(outcomes(820, 1000), correct_b)
    assert nested.mean == 0.02
    assert nested.is_significant is True
    # The same two accuracies, but the models fail on different images: no longer significant.
    apart = paired_difference(outcomes(820, 1000)[::-1], correct_b)
    assert apart.mean == 0.02
    assert apart.is_significant is False


def test_difference_interval_matches_the_normal_approximation():
    # 300 × +1, 200 × -1 of 10 000: variance of one image 0.05 - 0.01² = 0.0499.
    correct_a = outcomes(300, 10_000)
    correct_b = (np.arange(10_000) >= 300) & (np.arange(10_000) < 500)
    difference = paired_difference(correct_a, correct_b)
    half_width = 1.96 * math.sqrt(0.0499 / 10_000)
    assert difference.low == pytest.approx(0.01 - half_width, abs=2e-4)
    assert difference.high == pytest.approx(0.01 + half_width, abs=2e-4)


# Image 1 is right in both models, image 2 in one of two, so that they are worth 1 and 1/2. Two images drawn with
# replacement have the mean 1, 3/4 or 1/2, with probability 1/4, 1/2 and 1/4.
TWO_MODELS = np.array([[True, True], [True, False]])


def test_two_models_by_hand():
    assert bootstrap_half_width(TWO_MODELS) == 0.25


def test_two_models_against_one_by_hand():
    # Worth 1 - 1 and 1/2 - 0 to the first: differences 0, 1/4 or 1/2.
    difference = paired_difference(TWO_MODELS, np.array([True, False]))
    assert (difference.mean, difference.low, difference.high) == (0.25, 0.0, 0.5)
    assert not difference.is_significant
    back = paired_difference(np.array([True, False]), TWO_MODELS)
    assert (back.mean, back.low, back.high) == (-0.25, -0.5, 0.0)


def test_copies_of_a_model_change_nothing_but_the_draws():
    correct = np.arange(400) % 4 > 0  # three quarters: half-width 1.96 · sqrt(0.75 · 0.25 / 400) = 0.0424
    assert bootstrap_half_width(correct) == pytest.approx(0.0424, abs=0.001)
    assert bootstrap_half_width(np.stack([correct] * 3)) == pytest.approx(0.0424, abs=0.001)


def test_models_that_fail_on_other_images_are_surer_together():
    one = np.arange(400) % 2 == 0
    together = bootstrap_half_width(np.stack([one, ~one]))  # every image is worth 1/2
    assert together == 0.0


def test_what_cannot_be_resampled_is_refused():
    right, nothing = np.array([True, False, True]), np.array([], dtype=bool)
    for correct, says in ((nothing, "empty"), (np.array([3, 1]), "boolean"), (right[None, None], "one row of them")):
        with pytest.raises(ValueError, match=says):
            bootstrap_half_width(correct)
    for other, says in ((nothing, "correct_b is empty"), (right[:2], "same images")):
        with pytest.raises(ValueError, match=says):
            paired_difference(right, other)


def test_entries_about_one_image_are_drawn_together():
    a, b = outcomes(820, 1000), outcomes(800, 1000)[::-1]
    once = paired_difference(a, b)
    again = paired_difference(np.tile(a, 4), np.tile(b, 4), images=np.tile(np.arange(1000), 4))
    assert again.mean == pytest.approx(once.mean)
    assert (again.low, again.high) == pytest.approx((once.low, once.high), abs=0.002)
    apart = paired_difference(np.tile(a, 4), np.tile(b, 4), images=np.arange(4000))
    assert apart.high - apart.low == pytest.approx((once.high - once.low) / 2, abs=0.002)


def test_images_that_some_runs_have_weigh_by_their_entries():
    # Image 0 in three runs, +1 each; image 1 in one, -1. Resamples: both 0 (1/4): +1; both 1 (1/4): -1; mixed: 2/4.
    a, b = np.array([True, True, True, False]), np.array([False, False, False, True])
    difference = paired_difference(a, b, images=np.array([0, 0, 0, 1]))
    assert (difference.mean, difference.low, difference.high) == (0.5, -1.0, 1.0)
