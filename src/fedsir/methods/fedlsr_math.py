"""Two views of a sample that must agree: the loss of FedLSR (Jiang et al., CIKM 2022)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Mean = Literal["elements", "samples"]


def sharpened_mix(logits: Tensor, other: Tensor, share: Tensor | float, temperature: float = 0.5) -> Tensor:
    """Return p^(1/T), normalised, (n, C), of p = share · softmax(logits) + (1 - share) · softmax(other)."""
    mixed = share * logits.softmax(dim=1) + (1 - share) * other.softmax(dim=1)
    # By way of logarithms, so that small probabilities do not underflow.
    return (mixed.clamp_min(1e-12).log() / temperature).softmax(dim=1)


def classification(probabilities: Tensor, labels: Tensor, double_softmax: bool) -> Tensor:
    """Return the batch mean of -log p_label; with `double_softmax`, of p taken for logits and put through it again."""
    if double_softmax:
        return F.cross_entropy(probabilities, labels)
    return F.nll_loss(probabilities.clamp_min(1e-12).log(), labels)


def distilled(logits: Tensor, sharpness: float = 3.0) -> Tensor:
    """Return softmax(sharpness · logits), (n, C), kept above 1e-6."""
    return (sharpness * logits).softmax(dim=1).clamp(1e-6, 1)


def disagreement(one: Tensor, other: Tensor, mean: Mean) -> Tensor:
    """Return the Jensen-Shannon divergence of two predictions (n, C): a mean over samples, or over all n · C terms."""
    middle = ((one + other) / 2).log()
    terms = (one * (one.log() - middle) + other * (other.log() - middle)) / 2
    return terms.mean() if mean == "elements" else terms.sum(dim=1).mean()


def entropy(one: Tensor, other: Tensor, double_softmax: bool) -> Tensor:
    """Return the mean entropy of two predictions (n, C).

    With `double_softmax` as published: of the first view alone, after a softmax of its probabilities.
    """
    if double_softmax:
        again = one.log_softmax(dim=1)
        return -(again.exp() * again).sum(dim=1).mean()
    both = torch.cat([one, other])
    return -(both * both.log()).sum(dim=1).mean()
