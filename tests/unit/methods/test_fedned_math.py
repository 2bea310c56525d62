"""FedNed's mathematics: uncertainty under dropout, reciprocal answers, negative distillation."""

import math

import pytest
import torch
from torch import nn

from fedsir.methods.fedned_math import (
    dropout_masks,
    negative_loss,
    reciprocal_answers,
    scaled_pseudo_loss,
    shares_of,
    uncertainty,
)


def test_masks_drop_their_share_and_keep_the_mean() -> None:
    masks = dropout_masks(20, (50, 30), 0.3, torch.Generator().manual_seed(0))
    assert masks.shape == (20, 50, 30)
    assert masks.unique().tolist() == [0.0, pytest.approx(1 / 0.7)]
    assert (masks == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert masks.mean().item() == pytest.approx(1, abs=0.02)
    assert dropout_masks(2, (3,), 0.0, torch.Generator().manual_seed(0)).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_uncertainty_by_hand() -> None:
    # One image, one feature of log 3, logits (f, 0): probabilities (3/4, 1/4) with it, (1/2, 1/2) without.
    head = nn.Linear(1, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0], [0.0]]))
        head.bias.zero_()
    features = torch.tensor([[math.log(3)]])
    masks = torch.tensor([[[1.0]], [[0.0]]])
    mean = (0.625, 0.375)
    expected = -sum(p * math.log(p) for p in mean)
    assert uncertainty(features, head, masks).item() == pytest.approx(expected)
    # A mean over images: one more with a feature of 0, where all classes are alike.
    both = torch.cat([features, torch.zeros(1, 1)])
    assert uncertainty(both, head, masks.repeat(1, 2, 1)).item() == pytest.approx((expected + math.log(2)) / 2)


def test_a_model_that_is_certain_has_no_uncertainty() -> None:
    head = nn.Linear(1, 2)
    with torch.no_grad():
        head.weight.zero_()
        head.bias.copy_(torch.tensor([500.0, 0.0]))
    assert uncertainty(torch.ones(4, 1), head, torch.ones(2, 4, 1)).item() == 0


def test_shares_sum_to_one() -> None:
    assert shares_of({"a": 1.0, "b": 3.0}) == {"a": 0.25, "b": 0.75}
    assert shares_of({"a": 0.0, "b": 0.0}) == {"a": 0.5, "b": 0.5}
    assert shares_of({}) == {}


def test_reciprocal_answers_by_hand() -> None:
    # 1/f: 0.5, -1, 2; exp: 1.6487, 0.3679, 7.3891.
    answers = reciprocal_answers(torch.tensor([[2.0, -1.0, 0.5]]), floor=0.1)
    assert answers[0].tolist() == pytest.approx([0.1753, 0.0391, 0.7856], abs=1e-4)


def test_logits_near_zero_keep_their_sign_and_stay_finite() -> None:
    answers = reciprocal_answers(torch.tensor([[0.0, 1e-9, -1e-9, 0.1, math.inf]]), floor=0.1)
    assert answers[0, 0] == answers[0, 1] == answers[0, 3]  # all count as 0.1
    assert answers[0, 2] < 1e-8  # as -0.1
    assert answers.sum().item() == pytest.approx(1)


def test_negative_loss_by_hand() -> None:
    # softmax of (2 log 3, 0) / 2 is (3/4, 1/4).
    logits = torch.tensor([[2 * math.log(3), 0.0]])
    expected = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    assert negative_loss(logits, torch.tensor([[0.5, 0.5]]), 2.0).item() == pytest.approx(expected)
    assert negative_loss(logits, torch.tensor([[0.75, 0.25]]), 2.0).item() == pytest.approx(0, abs=1e-7)


def test_several_teachers_are_one_with_their_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(3, 4, generator=generator, requires_grad=True)
    teachers = torch.randn(2, 3, 4, generator=generator).softmax(dim=2)
    each = (negative_loss(student, teachers[0], 2.0) + negative_loss(student, teachers[1], 2.0)) / 2
    (expected,), (found,) = (
        torch.autograd.grad(loss, student) for loss in (each, negative_loss(student, teachers.mean(dim=0), 2.0))
    )
    assert torch.allclose(found, expected, atol=1e-7)


def test_the_published_mask_scales_the_batch() -> None:
    # At temperature 2 the first is sure by 10/11, the second by 1/2: half of the batch.
    logits = torch.tensor([[2 * math.log(10), 0.0], [0.0, 0.0]])
    cross_entropy = (math.log(1 + 1 / 100) + math.log(2)) / 2
    assert scaled_pseudo_loss(logits, 2.0, 0.9).item() == pytest.approx(cross_entropy / 2)
    assert scaled_pseudo_loss(logits, 2.0, 0.95).item() == 0
