"""Local intrinsic dimension against its formula and against shapes whose dimension is known."""

import math

import pytest
import torch

from fedsir.methods.lid import local_intrinsic_dimension


def by_the_formula(points: torch.Tensor, k: int) -> torch.Tensor:
    """Return -k / (Σ log(d_j / (d_k + 1e-6)) + 1e-6), all distances at once and sorted."""
    distances = (
        torch.cdist(points, points, compute_mode="donot_use_mm_for_euclid_dist").sort(dim=1).values[:, 1 : k + 1]
    )
    return -k / (torch.log(distances / (distances[:, -1:] + 1e-6)).sum(dim=1) + 1e-6)


def random_points(n: int, d: int) -> torch.Tensor:
    return torch.rand(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(n + d))


def test_by_hand() -> None:
    # From 0 the others are 1, 2 and 4 away; of the nearest two: -2 / (log(1/2) + log(2/2)) = 2 / log 2.
    lid = local_intrinsic_dimension(torch.tensor([[0.0], [1.0], [2.0], [4.0]]), 2)
    assert lid[0].item() == pytest.approx(2 / math.log(2), rel=1e-4)
    # From 4: 2 and 3 away, -2 / log(2/3).
    assert lid[3].item() == pytest.approx(2 / math.log(1.5), rel=1e-4)


@pytest.mark.parametrize("entries_at_once", [1, 100, 137, 10**6])
def test_in_pieces_it_is_the_direct_formula(entries_at_once: int) -> None:
    points = random_points(60, 5)
    expected = by_the_formula(points, 20)
    assert torch.allclose(local_intrinsic_dimension(points, 20, entries_at_once), expected, rtol=1e-9)


def test_points_that_lie_close_keep_their_digits() -> None:
    points = 0.5 + 1e-5 * random_points(50, 4)  # matrix products alone would blur these distances
    assert torch.allclose(local_intrinsic_dimension(points, 10), by_the_formula(points, 10), rtol=1e-6)


@pytest.mark.parametrize(("dimension", "low", "high"), [(1, 0.85, 1.25), (2, 1.7, 2.4), (4, 3.0, 4.6)])
def test_it_finds_the_dimension(dimension: int, low: float, high: float) -> None:
    points = random_points(2000, dimension) @ random_points(dimension, 10)  # a flat piece of a larger space
    assert low < local_intrinsic_dimension(points, 20).mean().item() < high


def test_pieces_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = torch.cdist

    def noted(one: torch.Tensor, other: torch.Tensor, **options: str) -> torch.Tensor:
        sizes.append(len(one) * len(other))
        return original(one, other, **options)

    monkeypatch.setattr(torch, "cdist", noted)
    local_intrinsic_dimension(random_points(500, 3), 20, entries_at_once=10_000)
    assert sizes == [10_000] * 25  # never 500 · 500


def test_points_that_coincide_are_near_zero_and_finite() -> None:
    lid = local_intrinsic_dimension(torch.ones(30, 10) / 10)
    assert lid.isfinite().all()
    assert (lid > 0).all() and (lid < 0.1).all()
    saturated = torch.eye(10).repeat(3, 1)  # three of each: two neighbours at 0, the others at √2
    assert local_intrinsic_dimension(saturated).isfinite().all()


def test_one_answer_unlike_all_others_decides_the_mean_of_a_sure_model() -> None:
    lid = local_intrinsic_dimension(torch.eye(3)[[0] * 40 + [1]])
    # Its twenty neighbours are all √2 away: -20 / (20 · log(√2 / (√2 + 1e-6)) + 1e-6).
    assert lid[-1] == pytest.approx(20 / (20e-6 / 2**0.5 - 1e-6), rel=1e-5)
    assert lid[-1] > 1e6 and lid[:-1].max() < 0.1


def test_few_points() -> None:
    assert torch.allclose(
        local_intrinsic_dimension(random_points(5, 3), 20), by_the_formula(random_points(5, 3), 4), rtol=1e-9
    )
    with pytest.raises(ValueError, match="at least 3 points, not 2"):
        local_intrinsic_dimension(random_points(2, 3))
