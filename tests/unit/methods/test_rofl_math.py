"""RoFL's mathematics, by hand."""

import math

import pytest
import torch

from fedsir.methods import rofl_math as c

TWO = torch.tensor([[1.0, 0.0], [0.0, 2.0]])  # the centroids of classes 0 and 1


def test_class_means_and_an_absent_class() -> None:
    features = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 5.0]])
    means = c.class_means(features, torch.tensor([0, 0, 2]), 3)
    assert means.tolist() == [[2.0, 0.0], [0.0, 0.0], [0.0, 5.0]]
    assert c.is_known(means).tolist() == [True, False, True]


def test_first_look_joins_batches() -> None:
    stream = [
        (torch.tensor([[1.0, 0.0], [3.0, 1.0]]), torch.tensor([0, 1])),
        (torch.tensor([[0.0, 4.0]]), torch.tensor([0])),
    ]
    predicted, means = c.first_look(stream, lambda features: features, 3)  # the features are the logits
    assert predicted.tolist() == [0, 0, 1]
    assert means.tolist() == [[0.5, 2.0], [3.0, 1.0], [0.0, 0.0]]


def test_nearest_is_by_angle_and_unknown_classes_never_win() -> None:
    features = torch.tensor([[3.0, 1.0], [0.1, 0.2], [-1.0, -2.0]])
    assert c.nearest(features, TWO).tolist() == [0, 1, 0]
    with_unknown = torch.cat([torch.zeros(1, 2), TWO])
    assert c.nearest(features, with_unknown).tolist() == [1, 2, 1]  # a cosine of 0 would beat the last one's -0.45


def test_moved_by_the_square_of_the_cosine() -> None:
    assert c.moved(TWO, torch.tensor([[0.0, 7.0], [0.0, 6.0]])).tolist() == [[1.0, 0.0], [0.0, 6.0]]  # s = 0, s = 1
    assert c.moved(TWO, torch.zeros(2, 2)).tolist() == TWO.tolist()  # no sample of either class
    halfway = c.moved(TWO[:1], torch.tensor([[1.0, 1.0]]))  # s² = 1/2
    assert halfway.tolist() == [pytest.approx([1.0, 0.5])]


def test_the_first_centroids_are_a_mean_by_samples_of_those_who_have_the_class() -> None:
    told = [torch.tensor([[2.0, 0.0], [0.0, 0.0]]), torch.tensor([[6.0, 4.0], [0.0, 3.0]])]
    # Class 0: (1 · (2, 0) + 3 · (6, 4)) / 4; class 1: the second client alone.
    assert c.agreed(None, told, [1, 3]).tolist() == [[5.0, 3.0], [0.0, 3.0]]


def test_later_centroids_are_weighted_by_cosine_not_below_zero() -> None:
    told = [
        torch.tensor([[2.0, 0.0], [0.0, 1.0]]),  # cosines 1 and 1
        torch.tensor([[1.0, math.sqrt(3)], [0.0, -9.0]]),  # 1/2 and -1: the latter counts as 0
    ]
    agreed = c.agreed(TWO, told, [1, 99])
    assert agreed[0].tolist() == pytest.approx([(2 + 0.5) / 1.5, 0.5 * math.sqrt(3) / 1.5], abs=1e-6)
    assert agreed[1].tolist() == pytest.approx([0.0, 1.0], abs=1e-6)


def test_when_all_point_away_the_centroid_is_their_plain_mean() -> None:
    agreed = c.agreed(TWO[:1], [torch.tensor([[-1.0, 0.0]]), torch.tensor([[-3.0, 0.0]])], [1, 9])
    assert agreed.tolist() == [pytest.approx([-2.0, 0.0])]


def test_a_class_that_nobody_has_stays_unknown() -> None:
    agreed = c.agreed(None, [torch.zeros(2, 2), torch.zeros(2, 2)], [3, 4])
    assert agreed.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert c.agreed(agreed, [torch.tensor([[1.0, 1.0], [0.0, 0.0]])], [3]).tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize(("n", "rate", "kept"), [(5, 0.2, 4), (10, 0.25, 7), (4, 0.0, 4), (3, 0.9, 1), (1, 0.5, 1)])
def test_the_samples_of_small_loss(n: int, rate: float, kept: int) -> None:
    logits = torch.stack([torch.arange(n, dtype=torch.float32), torch.zeros(n)], dim=1)  # the later, the surer of 0
    rows = c.small_loss(logits, torch.zeros(n, dtype=torch.int64), rate)
    assert rows.tolist() == list(range(n - 1, n - 1 - kept, -1))


LOGITS = torch.log(torch.tensor([[0.5, 0.5], [0.8, 0.2]]))
FEATURES = torch.tensor([[1.0, 0.0], [3.0, 0.0]])  # both nearest to class 0
LABELS = torch.tensor([0, 1])  # so only the first is confident


def guided(pseudo: torch.Tensor | None = None, central: float = 0.0, entropy: float = 0.0) -> float:
    loss, is_confident = c.guided_loss(
        LOGITS, FEATURES, LABELS, pseudo, TWO, central_weight=central, entropy_weight=entropy
    )
    assert is_confident.tolist() == [True, False]
    return loss.item()


def test_pseudo_labels_replace_labels_that_are_not_confident() -> None:
    assert guided() == pytest.approx(-(math.log(0.5) + math.log(0.2)) / 2)
    # The first keeps its label although the pseudo-label differs, the second gives way.
    assert guided(torch.tensor([1, 0])) == pytest.approx(-(math.log(0.5) + math.log(0.8)) / 2)


def test_the_entropy_is_added() -> None:
    entropies = [math.log(2), -0.8 * math.log(0.8) - 0.2 * math.log(0.2)]
    assert guided(entropy=0.5) - guided() == pytest.approx(0.5 * sum(entropies) / 2)


def test_the_central_loss_is_a_mean_over_samples_and_entries_of_confident_ones() -> None:
    features = torch.tensor([[2.0, 1.0], [3.0, 0.0]])  # the first is (1, 1) away from its centroid
    loss, _ = c.guided_loss(LOGITS, features, LABELS, None, TWO, central_weight=1.0, entropy_weight=0.0)
    assert loss.item() - guided() == pytest.approx((1 + 1) / 2 / 2)  # two entries, two samples
    assert guided(central=5.0) == pytest.approx(guided())  # the confident sample lies on its centroid
