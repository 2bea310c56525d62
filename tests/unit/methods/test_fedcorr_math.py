"""FedCorr's mathematics, by hand."""

import math

import pytest
import torch
from torch import nn

from fedsir.methods import fedcorr_math as c


def test_mixup_by_hand() -> None:
    images, labels = torch.tensor([[0.0, 8.0], [4.0, 0.0]]), torch.tensor([1, 0])
    draws = torch.tensor([[0.75, 0.9], [0.1, 0.2]])  # λ = 0.75 for both; 0.2 comes before 0.9: partners swap
    seen: list[torch.Tensor] = []

    class Identity(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            seen.append(x)
            return x

    loss = c.mixup_loss(Identity(), images, labels, draws)
    assert seen[0].tolist() == [[1.0, 6.0], [3.0, 2.0]]
    log_p = seen[0].log_softmax(dim=1)
    expected = [0.75 * log_p[0, 1] + 0.25 * log_p[0, 0], 0.75 * log_p[1, 0] + 0.25 * log_p[1, 1]]
    assert loss.item() == pytest.approx(-sum(e.item() for e in expected) / 2)


@pytest.mark.parametrize(
    ("norm", "expected", "pulls"), [("plain", 5.0, [0.6, 0.8, 0.0]), ("squared", 25.0, [6.0, 8.0, 0.0])]
)
def test_proximity_is_over_all_parameters_together(norm: c.Norm, expected: float, pulls: list[float]) -> None:
    start = [torch.tensor([0.0]), torch.tensor([0.0, 1.0])]
    moved = [torch.tensor([3.0], requires_grad=True), torch.tensor([4.0, 1.0], requires_grad=True)]
    unmoved = [tensor.clone().requires_grad_() for tensor in start]
    for now, distance, pull in ((moved, expected, pulls), (unmoved, 0.0, [0.0, 0.0, 0.0])):  # not NaN
        found = c.proximity(now, start, norm)
        assert found.item() == distance
        found.backward()
        assert [g for tensor in now if tensor.grad is not None for g in tensor.grad.tolist()] == pytest.approx(pull)


def test_sample_losses_once_and_twice_through_the_softmax() -> None:
    p, labels = torch.tensor([[0.25, 0.75], [0.0, 1.0]]), torch.tensor([0, 1])
    assert c.sample_losses(p, labels, double_softmax=False).tolist() == pytest.approx([math.log(4), 0.0])
    twice = [math.log(math.exp(0.25) + math.exp(0.75)) - 0.25, math.log(1 + math.e) - 1]
    assert c.sample_losses(p, labels, double_softmax=True).tolist() == pytest.approx(twice)


def test_the_noise_level_is_the_share_of_high_losses() -> None:
    assert c.noise_level(torch.tensor([0.1, 0.12, 0.11, 3.0, 3.1, 2.9, 3.05, 0.1])) == 0.5
    assert c.noise_level(torch.ones(5)) == 0.0
    assert c.noise_level(torch.ones(1)) == 0.0


def test_the_highest_losses() -> None:
    losses = torch.tensor([1.0, 5.0, 3.0, 4.0, 2.0])
    assert c.highest(losses, 0.4).tolist() == [False, True, False, True, False]
    assert c.highest(losses, 0.39).tolist() == [False, True, False, False, False]  # ⌊1.95⌋
    assert not c.highest(losses, 0.0).any()


def test_only_open_labels_change_and_only_where_the_model_is_sure() -> None:
    labels = torch.tensor([0, 0, 0, 1])
    p = torch.tensor([[0.1, 0.9], [0.1, 0.9], [0.5, 0.5], [0.2, 0.8]])
    is_open = torch.tensor([True, False, True, True])
    assert c.corrected(labels, p, is_open, 0.5).tolist() == [1, 0, 0, 1]  # 0.5 is not surer than 0.5
    assert c.corrected(labels, p, is_open, 0.95).tolist() == labels.tolist()
