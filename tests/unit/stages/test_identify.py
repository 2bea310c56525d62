"""Stage I on the client: directions, similarities, two numbers."""

import math
from itertools import pairwise

import numpy as np
import pytest

from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.spectrum import ClassFeatures, class_features
from fedsir.stages.split import OffDiagonal

NAN = math.nan


def statistics(features: np.ndarray, labels: np.ndarray, n_classes: int, min_samples: int = 1) -> OffDiagonal:
    return off_diagonal_stats(
        class_similarity(class_directions(class_features(features, labels, n_classes), min_samples))
    )


def features_of(counts: list[int]) -> ClassFeatures:
    """Return classes along the axes of the space with so many samples each."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return class_features(np.eye(len(counts))[labels], labels, len(counts))


def test_orthogonal_class_clouds_have_no_similarity() -> None:
    noise = np.random.default_rng(0).standard_normal((90, 12))
    labels = np.arange(90) % 3
    told = statistics(10 * np.eye(12)[labels] + 0.01 * noise, labels, 3)
    assert told.mean < 0.01
    assert told.energy < 1e-4
    assert told.n_usable_classes == 3


def test_similarity_of_known_directions() -> None:
    directions = np.array([[1.0, 0.0], [-0.6, 0.8], [NAN, NAN]])
    similarity = class_similarity(directions)
    assert similarity[:2, :2].flatten().tolist() == pytest.approx([1.0, 0.6, 0.6, 1.0])  # |−0.6| = 0.6
    assert np.isnan(similarity[2]).all()
    assert np.isnan(similarity[:, 2]).all()


def test_mean_and_energy_by_hand() -> None:
    similarity = np.array([[1.0, 0.2, 0.4], [0.2, 1.0, 0.6], [0.4, 0.6, 1.0]])
    told = off_diagonal_stats(similarity)
    assert told.mean == pytest.approx(0.4)  # (0.2 + 0.4 + 0.6) / 3
    assert told.energy == pytest.approx((0.04 + 0.16 + 0.36) / 3)
    assert told.n_usable_classes == 3
    assert told.fault is None


def test_absent_classes_are_undefined_and_left_out() -> None:
    features = np.array([[1.0, 0.0], [0.6, 0.8]])
    directions = class_directions(class_features(features, np.array([1, 3]), 5))
    assert np.isfinite(directions).all(axis=1).tolist() == [False, True, False, True, False]
    told = off_diagonal_stats(class_similarity(directions))
    assert (told.mean, told.energy) == pytest.approx((0.6, 0.36))
    assert told.n_usable_classes == 2


@pytest.mark.parametrize("labels", [[], [2], [2, 2, 2]])
def test_fewer_than_two_classes_say_nothing(labels: list[int]) -> None:
    told = statistics(np.ones((len(labels), 4)), np.array(labels, np.int64), 3)
    assert math.isnan(told.mean)
    assert math.isnan(told.energy)
    assert told.n_usable_classes == len(set(labels))
    assert told.fault == f"only {len(set(labels))} usable class(es); two are needed"


@pytest.mark.parametrize(
    ("counts", "usable"),
    [
        ([20, 19, 30, 0], [True, False, True, False]),  # classes below 20 do not count
        ([20, 19, 5, 0], [True, True, True, False]),  # only one class reaches 20: all present ones count
        ([3, 2, 0, 0], [True, True, False, False]),
    ],
)
def test_min_samples_and_its_fallback(counts: list[int], usable: list[bool]) -> None:
    assert np.isfinite(class_directions(features_of(counts), min_samples=20)).all(axis=1).tolist() == usable


def test_mixing_labels_raises_the_mean_with_the_noise_rate() -> None:
    """Non-negative features around one direction per class, as a network with ReLUs makes them."""
    random = np.random.default_rng(3)
    n_classes, n = 5, 500
    centres = random.random((n_classes, 32)) ** 4
    true = np.arange(n) % n_classes
    features = (centres[true] + 0.05 * random.standard_normal((n, 32))).clip(min=0)
    shuffled = random.permutation(n)
    shift = random.integers(1, n_classes, n)
    means = []
    for rate in (0.0, 0.2, 0.4, 0.6, 0.8):
        given = true.copy()
        flipped = shuffled[: round(rate * n)]
        given[flipped] = (true[flipped] + shift[flipped]) % n_classes
        means.append(statistics(features, given, n_classes).mean)
    assert means == sorted(means)
    steps = [after - before for before, after in pairwise(means)]
    assert all(step > 0.01 for step in steps[:3])
    assert means[-1] - means[0] > 0.3


def test_the_number_of_samples_does_not_matter() -> None:
    features = np.random.default_rng(1).random((40, 6))
    labels = np.arange(40) % 4
    once, thrice = statistics(features, labels, 4), statistics(np.tile(features, (3, 1)), np.tile(labels, 3), 4)
    assert thrice.mean == pytest.approx(once.mean)
    assert thrice.energy == pytest.approx(once.energy)
