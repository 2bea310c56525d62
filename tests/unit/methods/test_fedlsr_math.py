"""FedLSR's loss, by hand."""

import math

import pytest
import torch

from fedsir.methods import fedlsr_math as s

ONE = torch.log(torch.tensor([[0.8, 0.2]]))
OTHER = torch.log(torch.tensor([[0.4, 0.6]]))


def test_the_mix_is_sharpened_by_squaring() -> None:
    # 0.5 · (0.8, 0.2) + 0.5 · (0.4, 0.6) = (0.6, 0.4); squares 0.36 and 0.16.
    mixed = s.sharpened_mix(ONE, OTHER, 0.5)
    assert mixed[0].tolist() == pytest.approx([0.36 / 0.52, 0.16 / 0.52])
    assert s.sharpened_mix(ONE, OTHER, 1.0, temperature=1.0)[0].tolist() == pytest.approx([0.8, 0.2])
    hopeless = torch.tensor([[0.0, 200.0]])
    assert s.sharpened_mix(hopeless, hopeless, 0.5)[0].tolist() == pytest.approx([0.0, 1.0])  # no underflow


@pytest.mark.parametrize(("n_classes", "low", "high"), [(10, 1.461, 2.461), (100, 3.62, 4.62)])
def test_bounds_of_the_published_classification(n_classes: int, low: float, high: float) -> None:
    sure = torch.eye(n_classes)[:1]  # all on class 0
    right = s.classification(sure, torch.tensor([0]), double_softmax=True)
    wrong = s.classification(sure, torch.tensor([1]), double_softmax=True)
    assert right.item() == pytest.approx(math.log(math.e + n_classes - 1) - 1)
    assert (right.item(), wrong.item()) == pytest.approx((low, high), abs=0.006)


def test_the_classification_of_the_paper_is_one_logarithm() -> None:
    p = torch.tensor([[0.25, 0.75]])
    assert s.classification(p, torch.tensor([0]), double_softmax=False).item() == pytest.approx(math.log(4))
    published = math.log(math.exp(0.25) + math.exp(0.75)) - 0.25
    assert s.classification(p, torch.tensor([0]), double_softmax=True).item() == pytest.approx(published)


def test_distilled_is_a_sharper_softmax_kept_above_zero() -> None:
    cubes = [0.8**3, 0.2**3]
    assert s.distilled(ONE)[0].tolist() == pytest.approx([v / sum(cubes) for v in cubes])
    assert s.distilled(torch.tensor([[0.0, 100.0]]))[0, 0].item() == pytest.approx(1e-6)


def test_disagreement_is_the_jensen_shannon_divergence() -> None:
    p, q = torch.tensor([[1.0, 1e-6]]), torch.tensor([[1e-6, 1.0]])
    assert s.disagreement(p, q, "samples").item() == pytest.approx(math.log(2), abs=1e-4)
    assert s.disagreement(p, q, "elements").item() == pytest.approx(math.log(2) / 2, abs=1e-4)  # over two classes
    assert s.disagreement(p, p, "samples").item() == s.disagreement(p, p, "elements").item() == 0.0


def test_entropy_of_both_views_or_as_published() -> None:
    p, q = torch.tensor([[0.5, 0.5]]), torch.tensor([[0.9, 0.1]])
    h_q = -0.9 * math.log(0.9) - 0.1 * math.log(0.1)
    assert s.entropy(p, q, double_softmax=False).item() == pytest.approx((math.log(2) + h_q) / 2)
    high = math.exp(0.9) / (math.exp(0.9) + math.exp(0.1))
    published = -high * math.log(high) - (1 - high) * math.log(1 - high)
    assert s.entropy(q, p, double_softmax=True).item() == pytest.approx(published)  # the second view is ignored
