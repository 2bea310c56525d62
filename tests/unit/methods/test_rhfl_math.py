"""RHFL's mathematics: symmetric cross-entropy, confidence in clients, learning from the others' answers."""

import math

import pytest
import torch
import torch.nn.functional as F

from fedsir.methods.rhfl_math import answers_of_others, confidence_weights, consensus_loss, symmetric_cross_entropy

# ---------------------------------------------------------------- loss


@pytest.mark.parametrize(
    ("ce_weight", "expected"),
    [(0, 9.2103 * (0.3 + 0.5) / 2), (0.1, 9.2103 * 0.4 - 0.1 * (math.log(0.7) + math.log(0.5)) / 2)],
)
def test_cross_entropy_and_nine_times_the_doubt(ce_weight: float, expected: float) -> None:
    logits, labels = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.5, 0.25]]).log(), torch.tensor([0, 1])
    loss = symmetric_cross_entropy(logits, labels, ce_weight=ce_weight, reverse_weight=1)
    assert loss.item() == pytest.approx(expected, abs=1e-4)


def test_a_certain_wrong_answer_has_a_finite_loss_and_gradient() -> None:
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    loss = symmetric_cross_entropy(logits, torch.tensor([1]), ce_weight=0.1, reverse_weight=1.0)
    (gradient,) = torch.autograd.grad(loss, logits)
    assert loss.item() == pytest.approx(0.1 * 200 + 9.2103, abs=1e-3)
    assert bool(gradient.isfinite().all())


# ---------------------------------------------------------------- confidence


def test_the_first_round_has_no_history() -> None:
    assert confidence_weights({"a": 3.0, "b": 5.0, "c": 1.0}, {}, 0.5) == {"a": 0.5, "b": 0.5, "c": 0.5}


def test_falling_losses_count_more() -> None:
    # q: (6 - 4) / 4 = 0.5, (3 - 2) / 2 = 0.5, (5 - 5) / 5 = 0; u: 0.5 + 0.5 · (0.5, 0.5, 0) = 0.75, 0.75, 0.5.
    weights = confidence_weights({"a": 4.0, "b": 2.0, "c": 5.0}, {"a": 6.0, "b": 3.0, "c": 5.0}, 0.5)
    whole = 2 * math.exp(0.75) + math.exp(0.5)
    assert weights == pytest.approx(
        {"a": math.exp(0.75) / whole, "b": math.exp(0.75) / whole, "c": math.exp(0.5) / whole}
    )
    assert sum(weights.values()) == pytest.approx(1)


def test_a_client_heard_for_the_first_time_has_no_credit() -> None:
    with_late = confidence_weights({"a": 4.0, "late": 9.0}, {"a": 6.0}, 0.5)
    assert with_late == confidence_weights({"a": 4.0, "late": 9.0}, {"a": 6.0, "late": 9.0}, 0.5)
    assert with_late["a"] > with_late["late"]


@pytest.mark.parametrize("before", [{"a": 2.0, "b": 3.0}, {"a": 3.0, "b": 1.5}])  # q: 0, 0 and 0.5, -0.5
def test_credits_that_cancel_give_equal_weights(before: dict[str, float]) -> None:
    assert confidence_weights({"a": 2.0, "b": 3.0}, before, 0.5) == {"a": 0.5, "b": 0.5}


@pytest.mark.parametrize(
    ("losses", "before"),
    [
        ({"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 2.0, "b": 1e-5, "c": 1.0}),  # Σ q = 1e-5: a score of 50,000
        ({"a": 0.0, "b": 1.0, "c": 1.0}, {"a": 2.0, "b": 2.0, "c": 1.0}),  # a loss of 0
        ({"a": 3.0, "b": 2.0, "c": 9.0}, {"a": 1.0, "b": 1.0, "c": 1.0}),  # all rising
    ],
)
def test_weights_are_finite_and_sum_to_one_whatever_the_losses(
    losses: dict[str, float], before: dict[str, float]
) -> None:
    weights = confidence_weights(losses, before, 0.5)
    assert all(0 <= w <= 1 for w in weights.values())
    assert sum(weights.values()) == pytest.approx(1)


def test_one_client_or_none() -> None:
    assert confidence_weights({"a": 3.0}, {"a": 4.0}, 0.5) == {"a": 1.0}
    assert confidence_weights({}, {}, 0.5) == {}


# ---------------------------------------------------------------- the others


def test_everybody_hears_the_others() -> None:
    answers = {"a": torch.tensor([[1.0, 0.0]]), "b": torch.tensor([[0.5, 0.5]]), "c": torch.tensor([[0.0, 1.0]])}
    heard = answers_of_others(answers, {"a": 0.5, "b": 0.2, "c": 0.3})
    expected = {"a": [0.1, 0.4], "b": [0.5, 0.3], "c": [0.6, 0.1]}
    assert {k: pytest.approx(expected[k]) for k in expected} == {k: m[0].tolist() for k, m in heard.items()}
    assert heard["a"].dtype == torch.float32


def test_the_gradient_is_that_of_the_published_sum() -> None:
    generator = torch.Generator().manual_seed(0)
    student = torch.randn(4, 5, generator=generator, requires_grad=True)
    others = {k: torch.randn(4, 5, generator=generator).softmax(dim=1) for k in "bcd"}
    weights = {"a": 0.4, "b": 0.1, "c": 0.3, "d": 0.2}
    published = sum(
        weights[k] * F.kl_div(student.log_softmax(dim=1), p, reduction="batchmean") for k, p in others.items()
    )
    assert isinstance(published, torch.Tensor)
    heard = answers_of_others({"a": student.detach().softmax(dim=1), **others}, weights)["a"]
    (expected,), (found,) = (torch.autograd.grad(loss, student) for loss in (published, consensus_loss(student, heard)))
    assert torch.allclose(found, expected, atol=1e-7)
