"""Labels that are learnt: PENCIL's loss as FedELC (Jiang et al., CIKM 2024) has it, and what it does to the labels.

Every sample i has label logits u_i, (C,), and with them a soft label y_i = softmax(u_i). The network's prediction is
p_i = softmax(f(x_i)), the given label ỹ_i.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def first_label_logits(given: Tensor, n_classes: int, scale: float) -> Tensor:
    """Return u of given labels (n,) before any correction, (n, C): `scale` at the given label, else 0."""
    return F.one_hot(given, n_classes).to(torch.float32) * scale


def label_correction_loss(
    logits: Tensor, label_logits: Tensor, given: Tensor, *, compatibility: float, entropy: float
) -> Tensor:
    """Return the batch mean of KL(p ‖ y) / C + α · (-log y[ỹ]) + β · H(p) / C for logits and label logits (b, C).

    compatibility is α, entropy β. The second term has no gradient for the network, only for the labels.
    """
    log_p, log_y = F.log_softmax(logits, dim=1), F.log_softmax(label_logits, dim=1)
    p, n_classes = log_p.exp(), logits.shape[1]
    divergence = (p * (log_p - log_y)).sum(dim=1)
    disagreement = F.nll_loss(log_y, given, reduction="none")
    uncertainty = -(p * log_p).sum(dim=1)
    return (divergence / n_classes + compatibility * disagreement + entropy * uncertainty / n_classes).mean()


@torch.no_grad()
def label_gradient(logits: Tensor, label_logits: Tensor, given: Tensor, *, compatibility: float) -> Tensor:
    """Return ∂/∂u_i of sample i's own part of the loss, (b, C): (y - p) / C + α (y - e_ỹ).

    On its own this cannot flip a label: it rests where y[ỹ] ≥ α / (α + 1 / C).
    """
    y, n_classes = label_logits.softmax(dim=1), logits.shape[1]
    return (y - logits.softmax(dim=1)) / n_classes + compatibility * (y - F.one_hot(given, n_classes))


def merged_label_logits(label_logits: Tensor, predicted: Tensor, scale: float) -> Tensor:
    """Return u for the next round, (n, C): scale · ½ (y + p') with the trained network's predictions p', (n, C)."""
    return scale * (label_logits.softmax(dim=1) + predicted) / 2
