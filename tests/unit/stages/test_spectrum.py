"""Eq. (1) by rows and by Gram matrices, with numbers one can check by hand."""

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from fedsir.stages.spectrum import ClassFeatures, class_features, with_fixed_sign


def test_grams_of_three_samples_in_two_classes() -> None:
    features = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]])
    collected = class_features(features, np.array([0, 0, 2]), n_classes=3)
    # [1 2]ᵀ[1 2] + [3 4]ᵀ[3 4] = [[1, 2], [2, 4]] + [[9, 12], [12, 16]]
    assert collected.gram(0).tolist() == [[10.0, 14.0], [14.0, 20.0]]
    assert collected.gram(1).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert collected.gram(2).tolist() == [[25.0, 0.0], [0.0, 0.0]]
    assert collected.counts.tolist() == [2, 0, 1]
    assert collected.gram(0).dtype == np.float64


def test_spectrum_of_a_diagonal_matrix() -> None:
    features = np.array([[0.0, 3.0, 0.0], [-2.0, 0.0, 0.0]])
    spectrum = class_features(features, np.array([0, 0]), 1).spectrum(0)
    assert spectrum.singular_values.tolist() == pytest.approx([3.0, 2.0])
    # The sign makes the largest entry positive, though the sample points to -x.
    assert np.allclose(spectrum.right_vectors, [[0, 1, 0], [1, 0, 0]])


def test_one_sample_is_its_own_direction() -> None:
    spectrum = class_features(np.array([[3.0, -4.0]]), np.array([0]), 1).spectrum(0)
    assert spectrum.singular_values.tolist() == pytest.approx([5.0])
    assert spectrum.right_vectors.flatten().tolist() == pytest.approx([-0.6, 0.8])


def test_a_class_without_samples_has_an_empty_spectrum() -> None:
    spectrum = class_features(np.ones((1, 4)), np.array([0]), 2).spectrum(1)
    assert spectrum.singular_values.shape == (0,)
    assert spectrum.right_vectors.shape == (0, 4)


def test_rounding_below_zero_does_not_become_nan() -> None:
    # Rank 1 in 40 dimensions: 39 eigenvalues are 0 and come out of eigh with either sign.
    row = np.linspace(-1, 1, 40)
    spectrum = class_features(np.tile(row, (60, 1)), np.zeros(60, np.int64), 1).spectrum(0)
    assert np.isfinite(spectrum.singular_values).all()
    assert spectrum.singular_values[0] == pytest.approx(float(np.linalg.norm(row)) * 60**0.5)
    assert spectrum.singular_values[1:].max() < 1e-5


def test_fixed_sign_makes_the_largest_entry_positive() -> None:
    rows = np.array([[1.0, -3.0, 2.0], [1.0, 2.0, -1.0], [0.0, 0.0, 0.0]])
    assert with_fixed_sign(rows).tolist() == [[-1.0, 3.0, -2.0], [1.0, 2.0, -1.0], [0.0, 0.0, 0.0]]
    assert with_fixed_sign(np.zeros((0, 3))).shape == (0, 3)


def test_large_and_small_directions_survive_squaring() -> None:
    # σ = 1000 and 0.01: in float32 the Gram matrix would lose the small one (1e6 against 1e-4).
    features = np.diag(np.array([1000.0, 0.01]))
    spectrum = class_features(features, np.array([0, 0]), 1).spectrum(0)
    assert spectrum.singular_values.tolist() == pytest.approx([1000.0, 0.01], rel=1e-6)


def test_few_samples_stay_rows_and_many_become_a_matrix() -> None:
    features = np.random.default_rng(0).standard_normal((40, 8))
    collected = ClassFeatures(2, 8)
    labels = np.zeros(40, np.int64)
    sizes, values = [], []
    for n in (3, 4, 5, 8, 9, 40):  # up to 8 rows are kept
        collected.include(features[int(collected.counts[0]) : n], labels[int(collected.counts[0]) : n])
        sizes.append(collected.n_kept(0))
        values.append((collected.spectrum(0).singular_values, np.linalg.svd(features[:n], compute_uv=False)))
    assert sizes == [3 * 8, 4 * 8, 5 * 8, 8 * 8, 8 * 8, 8 * 8]
    for ours, plain in values:
        np.testing.assert_allclose(ours, plain, rtol=1e-9, atol=1e-9)


def test_what_is_kept_does_not_hold_on_to_its_batch() -> None:
    collected = class_features(np.ones((100, 64)), (np.arange(100) == 7).astype(np.int64), 2)
    (row,) = collected._rows[1]
    assert row.base is None
    assert row.shape == (1, 64)


@pytest.mark.parametrize("n", [1, 32, 33, 48, 49, 200])  # few vectors, rows, a Gram matrix
def test_leading_is_the_first_of_the_spectrum(n: int) -> None:
    features = np.random.default_rng(n).random((n, 48))
    collected = class_features(features, np.zeros(n, np.int64), 1)
    sigma, direction = collected.leading(0)
    spectrum = collected.spectrum(0)
    assert sigma == pytest.approx(float(spectrum.singular_values[0]), rel=1e-12)
    np.testing.assert_allclose(direction, spectrum.right_vectors[0], rtol=0, atol=1e-11)


def one_class_of(*sigma: float) -> ClassFeatures:
    """Return a class with these singular values, along the axes, and enough small ones to need a power iteration."""
    features = np.diag(np.array([*sigma, *[0.1] * 40]))
    return class_features(features, np.zeros(len(features), np.int64), 1)


def test_leading_where_the_second_is_close() -> None:
    # Power iteration would need thousands of steps: 0.999² of the error is left after each.
    collected = one_class_of(1.0, 0.999)
    sigma, direction = collected.leading(0)
    assert sigma == pytest.approx(1.0)
    assert np.array_equal(direction, collected.spectrum(0).right_vectors[0])


def test_leading_where_two_are_equal_is_one_of_theirs() -> None:
    sigma, direction = one_class_of(1.0, 1.0).leading(0)
    assert sigma == pytest.approx(1.0)
    assert float(np.linalg.norm(direction)) == pytest.approx(1.0)
    assert np.abs(direction[2:]).max() < 1e-12


def test_leading_of_features_that_are_zero() -> None:
    for n, d in ((5, 4), (40, 36), (40, 50)):
        sigma, direction = class_features(np.zeros((n, d)), np.zeros(n, np.int64), 1).leading(0)
        assert sigma == 0.0
        assert np.isfinite(direction).all()


@pytest.mark.parametrize("n", [60, 300])  # rows, and a Gram matrix
def test_the_number_of_blas_threads_does_not_matter(n: int) -> None:
    features = np.random.default_rng(0).random((n, 256), dtype=np.float32)

    def numbers(n_threads: int) -> list[np.ndarray]:
        with threadpool_limits(n_threads):
            collected = class_features(features, np.zeros(n, np.int64), 1)
            spectrum = collected.spectrum(0)
            return [collected.gram(0), collected.leading(0)[1], spectrum.singular_values, spectrum.right_vectors]

    for one, other in zip(numbers(1), numbers(4), strict=True):
        assert np.array_equal(one, other)


def test_rows_that_are_almost_the_same_still_give_orthonormal_vectors() -> None:
    random = np.random.default_rng(0)
    row = random.random(50)
    features = np.stack([row, row + 1e-9 * random.random(50), random.random(50)])
    vectors = class_features(features, np.zeros(3, np.int64), 1).spectrum(0).right_vectors
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(3), atol=1e-12)
