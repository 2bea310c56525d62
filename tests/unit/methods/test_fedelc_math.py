"""Labels that are learnt: FedELC's loss, its gradient with regard to the labels, and the merge."""

import math

import pytest
import torch

from fedsir.methods.fedelc_math import (
    first_label_logits,
    label_correction_loss,
    label_gradient,
    merged_label_logits,
)


def test_the_first_label_logits() -> None:
    assert first_label_logits(torch.tensor([1, 0]), 3, 10.0).tolist() == [[0.0, 10.0, 0.0], [10.0, 0.0, 0.0]]


# p = (3/4, 1/4), y = (1/2, 1/2), given label 0.
LOGITS, LABEL_LOGITS, GIVEN = torch.tensor([[math.log(3), 0.0]]), torch.zeros(1, 2), torch.tensor([0])


def test_the_loss_by_hand() -> None:
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    entropy = -0.75 * math.log(0.75) - 0.25 * math.log(0.25)
    expected = divergence / 2 + 0.5 * math.log(2) + 0.2 * entropy / 2
    assert expected == pytest.approx(0.46821, abs=1e-5)
    loss = label_correction_loss(LOGITS, LABEL_LOGITS, GIVEN, compatibility=0.5, entropy=0.2)
    assert loss.item() == pytest.approx(expected)
    three = [tensor.repeat(3, *[1] * (tensor.ndim - 1)) for tensor in (LOGITS, LABEL_LOGITS, GIVEN)]
    assert label_correction_loss(*three, compatibility=0.5, entropy=0.2).item() == pytest.approx(expected)  # a mean


@pytest.mark.parametrize(("compatibility", "pull"), [(0.5, 0.375), (0.0, 0.125)])
def test_the_gradient_by_hand(compatibility: float, pull: float) -> None:
    # (y - p) / 2 = (-1/8, 1/8); ½ (y - e) = (-1/4, 1/4)
    gradient = label_gradient(LOGITS, LABEL_LOGITS, GIVEN, compatibility=compatibility)
    assert gradient[0].tolist() == pytest.approx([-pull, pull])


def test_the_gradient_is_that_of_the_loss() -> None:
    generator = torch.Generator().manual_seed(1)
    logits, label_logits = (torch.randn(5, 7, generator=generator, dtype=torch.float64) for _ in range(2))
    given = torch.tensor([0, 6, 2, 2, 5])
    label_logits.requires_grad_()
    label_correction_loss(logits, label_logits, given, compatibility=0.5, entropy=0.2).backward()
    own = label_gradient(logits, label_logits, given, compatibility=0.5)  # the loss is a mean over five
    assert torch.allclose(5 * label_logits.grad, own, atol=1e-12)
    assert not own.requires_grad


@pytest.mark.parametrize(("n_classes", "rest"), [(10, 0.5 / 0.6), (100, 0.5 / 0.51)])
def test_the_gradient_alone_never_flips_a_label(n_classes: int, rest: float) -> None:
    given, sure_of_another = torch.tensor([3]), torch.full((1, n_classes), -50.0)
    sure_of_another[0, 7] = 50.0
    label_logits = first_label_logits(given, n_classes, 10.0)
    for _ in range(2000):
        label_logits = label_logits - label_gradient(sure_of_another, label_logits, given, compatibility=0.5)
    y = label_logits.softmax(dim=1)[0]
    assert y[3].item() == pytest.approx(rest, abs=2e-3)  # 0.833 with ten classes
    assert y.argmax().item() == 3


def test_the_merge_can_flip_a_label() -> None:
    label_logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]])  # y = (3/4, 1/4)
    merged = merged_label_logits(label_logits, torch.tensor([[0.1, 0.9], [0.3, 0.7]]), 10.0)
    assert merged[0].tolist() == pytest.approx([4.25, 5.75])
    assert merged[1].tolist() == pytest.approx([5.25, 4.75])
    assert merged.argmax(dim=1).tolist() == [1, 0]


def test_saturated_logits_stay_finite() -> None:
    logits = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    loss = label_correction_loss(logits, torch.tensor([[10.0, 0.0]]), torch.tensor([1]), compatibility=0.5, entropy=0.2)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad is not None and logits.grad.isfinite().all()
