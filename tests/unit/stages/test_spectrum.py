"""The Gram route of Eq. (1), with numbers one can check by hand."""

import pytest
import torch

from fedsir.stages.spectrum import class_grams, class_spectrum, with_fixed_sign


def test_grams_of_three_samples_in_two_classes() -> None:
    features = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]])
    grams = class_grams(features, torch.tensor([0, 0, 2]), n_classes=3)
    # [1 2]ᵀ[1 2] + [3 4]ᵀ[3 4] = [[1, 2], [2, 4]] + [[9, 12], [12, 16]]
    assert grams.grams[0].tolist() == [[10.0, 14.0], [14.0, 20.0]]
    assert grams.grams[1].tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert grams.grams[2].tolist() == [[25.0, 0.0], [0.0, 0.0]]
    assert grams.counts.tolist() == [2, 0, 1]
    assert grams.grams.dtype == torch.float64


def test_spectrum_of_a_diagonal_matrix() -> None:
    features = torch.tensor([[0.0, 3.0, 0.0], [-2.0, 0.0, 0.0]])
    spectrum = class_spectrum(class_grams(features, torch.tensor([0, 0]), 1), 0)
    assert spectrum.singular_values.tolist() == pytest.approx([3.0, 2.0])
    # The sign makes the largest entry positive, though the sample points to -x.
    assert torch.allclose(spectrum.right_vectors, torch.tensor([[0.0, 1, 0], [1, 0, 0]], dtype=torch.float64))
    assert spectrum.n_samples == 2


def test_one_sample_is_its_own_direction() -> None:
    spectrum = class_spectrum(class_grams(torch.tensor([[3.0, -4.0]]), torch.tensor([0]), 1), 0)
    assert spectrum.singular_values.tolist() == pytest.approx([5.0])
    assert spectrum.right_vectors.flatten().tolist() == pytest.approx([-0.6, 0.8])


def test_a_class_without_samples_has_an_empty_spectrum() -> None:
    spectrum = class_spectrum(class_grams(torch.ones(1, 4), torch.tensor([0]), 2), 1)
    assert spectrum.singular_values.shape == (0,)
    assert spectrum.right_vectors.shape == (0, 4)
    assert spectrum.n_samples == 0


def test_rounding_below_zero_does_not_become_nan() -> None:
    # Rank 1 in 40 dimensions: 39 eigenvalues are 0 and come out of eigh with either sign.
    row = torch.linspace(-1, 1, 40)
    spectrum = class_spectrum(class_grams(row.expand(60, 40), torch.zeros(60, dtype=torch.int64), 1), 0)
    assert spectrum.singular_values.isfinite().all()
    assert spectrum.singular_values[0] == pytest.approx(float(row.norm()) * 60**0.5)
    assert spectrum.singular_values[1:].max() < 1e-5


def test_fixed_sign_makes_the_largest_entry_positive() -> None:
    rows = torch.tensor([[1.0, -3.0, 2.0], [1.0, 2.0, -1.0], [0.0, 0.0, 0.0]])
    assert with_fixed_sign(rows).tolist() == [[-1.0, 3.0, -2.0], [1.0, 2.0, -1.0], [0.0, 0.0, 0.0]]
    assert with_fixed_sign(torch.zeros(0, 3)).shape == (0, 3)


def test_large_and_small_directions_survive_squaring() -> None:
    # σ = 1000 and 0.01: in float32 the Gram matrix would lose the small one (1e6 against 1e-4).
    features = torch.diag(torch.tensor([1000.0, 0.01]))
    spectrum = class_spectrum(class_grams(features, torch.tensor([0, 0]), 1), 0)
    assert spectrum.singular_values.tolist() == pytest.approx([1000.0, 0.01], rel=1e-6)
