"""Symmetric cross-entropy, client confidence, and learning from the others' answers: RHFL (CVPR 2022)."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

ABSENT = 1e-4  # what a label says of every other class, so that its logarithm exists
SMALLEST_PROBABILITY = 1e-7
NO_CREDIT = 1e-8  # a sum of credits below this cannot be divided by


def symmetric_cross_entropy(logits: Tensor, labels: Tensor, *, ce_weight: float, reverse_weight: float) -> Tensor:
    """Return the batch mean of a · CE + b · RCE, where RCE = -Σ_c p_c · log(label_c) = 9.21 · (1 - p_label)."""
    log_p = F.log_softmax(logits, dim=1)
    p = log_p.exp().clamp_min(SMALLEST_PROBABILITY)
    elsewhere = p.sum(dim=1) - p.gather(1, labels[:, None])[:, 0]
    reverse = -math.log(ABSENT) * elsewhere.mean()
    return ce_weight * F.nll_loss(log_p, labels) + reverse_weight * reverse


def confidence_weights(losses: Mapping[str, float], before: Mapping[str, float], strength: float) -> dict[str, float]:
    """Return w_k of each client from its mean loss now and a round before: more for losses that are low and falling.

    q_k = (ℓ_k(t - 1) - ℓ_k(t)) / ℓ_k(t), w = softmax of 1 / (K - 1) + β · q_k / Σ q; β is `strength`. While nobody
    has a loss from before, w_k = 1 / (K - 1). A client without one has q = 0; where Σ q is 0, all weights are equal.
    """
    n = len(losses)
    if n < 2:
        return dict.fromkeys(losses, 1.0)
    if not any(client in before for client in losses):
        return dict.fromkeys(losses, 1 / (n - 1))
    credit = {k: (before.get(k, loss) - loss) / max(loss, NO_CREDIT) for k, loss in losses.items()}
    total = math.fsum(credit.values())
    if abs(total) < NO_CREDIT:
        return dict.fromkeys(losses, 1 / n)
    scores = {k: 1 / (n - 1) + strength * q / total for k, q in credit.items()}
    largest = max(scores.values())  # without it the exponential of a large score overflows
    raised = {k: math.exp(score - largest) for k, score in scores.items()}
    whole = math.fsum(raised.values())
    return {k: value / whole for k, value in raised.items()}


def answers_of_others(answers: Mapping[str, Tensor], weights: Mapping[str, float]) -> dict[str, Tensor]:
    """Return Σ_{j ≠ k} w_j · p_j for each client k; answers p_k are probabilities, each (m, C)."""
    total = torch.stack([weights[k] * p.to(torch.float64) for k, p in answers.items()]).sum(dim=0)
    return {k: (total - weights[k] * p.to(torch.float64)).clamp_min(0).to(torch.float32) for k, p in answers.items()}


def consensus_loss(logits: Tensor, others: Tensor) -> Tensor:
    """Return the batch mean of -Σ_c others_c · log p_c, with others = Σ w_j p_j, (b, C).

    Up to a constant that is Σ w_j · KL(p_j ‖ p), and it has the same gradient.
    """
    return -(others * F.log_softmax(logits, dim=1)).sum(dim=1).mean()
