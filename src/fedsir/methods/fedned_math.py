"""Models of extremely noisy clients, how to tell them and what to learn from them: FedNed (AAAI 2024)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def dropout_masks(n_passes: int, shape: tuple[int, ...], rate: float, generator: torch.Generator) -> Tensor:
    """Return (n_passes, *shape): 0 with probability `rate`, else 1 / (1 - rate); drawn on the CPU."""
    drawn = torch.rand(n_passes, *shape, generator=generator, device="cpu")
    return (drawn >= rate).to(torch.float32) / (1 - rate)


def uncertainty(features: Tensor, head: nn.Module, masks: Tensor) -> Tensor:
    """Return the entropy of the mean probability over dropout passes, mean over images, a 0-dim tensor.

    features : (n, d); masks : (passes, n, d)
    """
    mean = torch.stack([head(features * mask).softmax(dim=1) for mask in masks]).mean(dim=0)  # (n, C)
    return mean_entropy(mean)


def mean_entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy of each row of (n, C) in nats, mean over rows, a 0-dim tensor."""
    entropy: Tensor = -torch.special.xlogy(probabilities, probabilities).sum(dim=1).mean()
    return entropy


def shares_of(scores: Mapping[str, float]) -> dict[str, float]:
    """Return each client's part of the whole uncertainty; equal parts if there is none."""
    total = math.fsum(scores.values())
    return {k: score / total if total > 0 else 1 / len(scores) for k, score in scores.items()}


def reciprocal_answers(logits: Tensor, floor: float) -> Tensor:
    """Return softmax(1 / f), (n, C): what a bad teacher's answers turn into; |f| counts as at least `floor`."""
    magnitude = logits.abs().clamp_min(floor)
    return torch.where(logits < 0, -1 / magnitude, 1 / magnitude).softmax(dim=1)


def negative_loss(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the batch mean of KL(targets ‖ softmax(f / τ)); targets are the mean over bad teachers, (b, C)."""
    return F.kl_div(F.log_softmax(logits / temperature, dim=1), targets, reduction="batchmean")


def scaled_pseudo_loss(logits: Tensor, temperature: float, confidence: float) -> Tensor:
    """Return the batch mean of CE with the predicted classes, times the share of samples surer than `confidence`."""
    certainty, predicted = (logits.detach() / temperature).softmax(dim=1).max(dim=1)
    return F.cross_entropy(logits, predicted) * (certainty >= confidence).to(logits.dtype).mean()
