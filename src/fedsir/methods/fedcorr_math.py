"""Mixup, the proximal term, and label correction by loss and confidence: the mathematics of FedCorr (CVPR 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsir.methods.score_split import higher_group

Norm = Literal["plain", "squared"]


def mixup_loss(module: nn.Module, images: Tensor, labels: Tensor, draws: Tensor) -> Tensor:
    """Return the loss of λ · images + (1 - λ) · other images of the batch, to both labels in the same shares.

    draws : (n, 2) uniform in [0, 1). The first number is λ, which is Beta(1, 1); the second column deals the partners.
    """
    share, partner = draws[0, 0], draws[:, 1].argsort(stable=True)
    logits = module(share * images + (1 - share) * images[partner])
    return share * F.cross_entropy(logits, labels) + (1 - share) * F.cross_entropy(logits, labels[partner])


def proximity(parameters: Sequence[Tensor], reference: Sequence[Tensor], norm: Norm) -> Tensor:
    """Return ‖w - w_reference‖₂ over all parameters, or its square; the gradient of the plain norm is 0 at 0."""
    norms = [torch.linalg.vector_norm(one - other) for one, other in zip(parameters, reference, strict=True)]
    distance: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return distance if norm == "plain" else distance.square()


def sample_losses(probabilities: Tensor, labels: Tensor, double_softmax: bool) -> Tensor:
    """Return -log p_label, (n,); with `double_softmax`, of p (n, C) taken for logits and put through it again."""
    if double_softmax:
        return F.cross_entropy(probabilities, labels, reduction="none")
    return F.nll_loss(probabilities.clamp_min(1e-12).log(), labels, reduction="none")


def noise_level(losses: Tensor) -> float:
    """Return the share of samples in the higher of two groups of losses (n,)."""
    return float(np.mean(higher_group(losses.numpy()) > 0.5))


def highest(losses: Tensor, share: float) -> Tensor:
    """Return which are the ⌊share · n⌋ samples of the highest loss, (n,)."""
    is_high = torch.zeros_like(losses, dtype=torch.bool)
    n_high = int(share * len(losses) + 1e-9)
    is_high[losses.argsort(descending=True, stable=True)[:n_high]] = True
    return is_high


def corrected(labels: Tensor, probabilities: Tensor, is_open: Tensor, threshold: float) -> Tensor:
    """Return labels (n,), open ones replaced where the prediction (n, C) is surer than the threshold."""
    confidence, predicted = probabilities.max(dim=1)
    return torch.where(is_open & (confidence > threshold), predicted, labels)
