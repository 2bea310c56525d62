"""Invariants of the spectral stages: Gram matrices say what the SVD says, batches add up, rotations change nothing."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.relabel import dominant_block, extract_spectra, fault_of
from fedsir.stages.spectrum import ClassFeatures, class_features

SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 9))  # n < d, n = d, n > d, n = 1, d = 1
SEED = st.integers(0, 2**31)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def one_class(features: np.ndarray) -> ClassFeatures:
    return class_features(features, np.zeros(len(features), np.int64), 1)


@given(shape=SHAPES, seed=SEED, n_copies=st.integers(1, 3))
def test_rows_and_gram_matrices_equal_the_svd(shape: tuple[int, int], seed: int, n_copies: int) -> None:
    features = np.tile(normal(seed, *shape), (n_copies, 1))  # copies make it rank-deficient
    spectrum = one_class(features).spectrum(0)
    _, sigma, rows = np.linalg.svd(features, full_matrices=False)
    assert spectrum.singular_values.shape == sigma.shape
    assert np.allclose(spectrum.singular_values, sigma, atol=1e-6)
    assert np.allclose(spectrum.right_vectors @ spectrum.right_vectors.T, np.eye(len(sigma)), atol=1e-8)
    for i, value in enumerate(sigma.tolist()):
        neighbours = [abs(value - other) for j, other in enumerate(sigma.tolist()) if j != i]
        if value > 1e-3 and min(neighbours, default=1.0) > 1e-3:  # the vector of a simple value is unique up to sign
            assert abs(float(spectrum.right_vectors[i] @ rows[i])) > 1 - 1e-6


@given(seed=SEED, d=st.integers(1, 16), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_batches_say_the_same_as_the_whole(seed: int, d: int, cuts: list[int]) -> None:
    features = normal(seed, 40, d)
    labels = np.random.default_rng(seed).integers(0, 3, 40)
    whole = class_features(features, labels, 4)
    parts = ClassFeatures(4, d)
    for a, b in pairwise([0, *sorted(cuts), 40]):
        parts.include(features[a:b], labels[a:b])
    assert parts.counts.tolist() == whole.counts.tolist()
    for label in range(4):
        plain = features[labels == label]
        assert np.allclose(parts.gram(label), plain.T @ plain, atol=1e-12)
        assert np.allclose(whole.gram(label), plain.T @ plain, atol=1e-12)
        assert parts.n_kept(label) == whole.n_kept(label) <= d * d


@given(seed=SEED)
def test_a_rotation_of_the_feature_space_leaves_the_statistics(seed: int) -> None:
    features, labels = normal(seed, 30, 6), np.arange(30) % 3
    rotation, _ = np.linalg.qr(normal(seed + 1, 6, 6))
    told = [
        off_diagonal_stats(class_similarity(class_directions(class_features(z, labels, 3))))
        for z in (features, features @ rotation, 7 * features)
    ]
    for other in told[1:]:
        assert abs(other.mean - told[0].mean) < 1e-6
        assert abs(other.energy - told[0].energy) < 1e-6


@given(seed=SEED, n_classes=st.integers(2, 5))
def test_statistics_are_bounded(seed: int, n_classes: int) -> None:
    features, labels = normal(seed, 25, 4), np.arange(25) % n_classes
    told = off_diagonal_stats(class_similarity(class_directions(class_features(features, labels, n_classes))))
    assert told.n_usable_classes == n_classes
    assert 0 <= told.mean <= 1 + 1e-12
    assert told.mean**2 <= told.energy + 1e-12  # Jensen: the mean of squares is at least the square of the mean
    assert told.energy <= told.mean + 1e-12  # each similarity is at most 1


@given(
    sigma=st.lists(st.floats(0.01, 100), min_size=1, max_size=12).map(lambda v: sorted(v, reverse=True)),
    ratio=st.floats(0.1, 50),
)
def test_the_dominant_block_is_the_smallest_that_reaches_the_ratio(sigma: list[float], ratio: float) -> None:
    k = dominant_block(np.array(sigma), ratio)
    assert 1 <= k <= len(sigma)
    assert sum(sigma[:k]) * (1 + 1e-9) >= ratio * sum(sigma[k:])
    assert all(sum(sigma[:j]) < ratio * sum(sigma[j:]) * (1 + 1e-9) for j in range(1, k))


@settings(deadline=None)
@given(
    seed=SEED,
    rank=st.integers(1, 8),
    variant=st.sampled_from(["after_block", "after_direction"]),
    labels=st.lists(st.integers(0, 2), min_size=1, max_size=20),
)
def test_what_a_clean_client_sends_is_sound(seed: int, rank: int, variant: Any, labels: list[int]) -> None:
    y = np.array(labels)
    spectra = extract_spectra(class_features(normal(seed, len(labels), 6), y, 4), rank, variant)
    assert fault_of(spectra) is None
    assert spectra.counts.tolist() == np.bincount(y, minlength=4).tolist()
    for label in range(4):
        kept = int(spectra.residual_ranks[label])
        assert kept <= rank
        basis = np.concatenate([spectra.directions[label][None], spectra.residuals[label, :kept]])
        present = spectra.counts[label] > 0
        expected = np.eye(1 + kept) if present else np.zeros((1, 1))
        assert np.allclose(basis @ basis.T, expected, atol=1e-4)  # residuals are orthogonal to the direction
        assert not spectra.residuals[label, kept:].any()
