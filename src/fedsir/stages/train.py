"""Stage III, train: logit-adjusted loss, distillation on noisy clients, distance-aware aggregation."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
Distance = Literal["normalised", "raw"]


def class_prior(labels: Tensor, n_classes: int, floor: int = 1) -> Tensor:
    """Return the share of each class among labels (n,), (C,); absent classes count as `floor` samples."""
    counts = torch.bincount(labels, minlength=n_classes).clamp_min(floor).to(torch.float32)
    return counts / counts.sum()


def logit_adjustment(prior: Tensor, strength: float = 1.0, epsilon: float = 1e-12) -> Tensor:
    """Return m = strength · log(prior + ε), (C,); strength is β in the paper."""
    return strength * torch.log(prior + epsilon)


def la_loss(logits: Tensor, labels: Tensor, adjustment: Tensor) -> Tensor:
    """Return the batch mean of CE(logits + m, labels), Eq. (11)."""
    return F.cross_entropy(logits + adjustment, labels)


def la_kd_loss(
    logits: Tensor,
    teacher_logits: Tensor,
    labels: Tensor,
    adjustment: Tensor,
    *,
    weight: float,
    temperature: float,
    is_distilled: Tensor | None = None,
) -> Tensor:
    """Return the batch mean of w · KL(p ‖ q) + (1 - w) · NLL(q, labels), Eq. (12) to (17).

    p = softmax(teacher / τ) without adjustment, q = softmax(logits + m). Samples where `is_distilled` (n,) is False
    get the plain logit-adjusted loss; None distils all.
    """
    log_q = F.log_softmax(logits + adjustment, dim=1)
    nll = F.nll_loss(log_q, labels, reduction="none")
    log_p = F.log_softmax(teacher_logits / temperature, dim=1)
    kl = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=1)
    w: float | Tensor = weight if is_distilled is None else weight * is_distilled.to(nll.dtype)
    return (w * kl + (1 - w) * nll).mean()


def kd_ramp(r: float, *, peak: float, begin: float, end: float) -> float:
    """Return w(r) = peak · exp(-5 (1 - (clip(r, begin, end) - begin) / (end - begin))²) for the 0-based round r."""
    if end <= begin:
        return peak
    progress = (min(max(r, begin), end) - begin) / (end - begin)
    return peak * math.exp(-5 * (1 - progress) ** 2)


def average_models(models: Sequence[Weights], shares: Sequence[float]) -> Weights:
    """Return Σ share · model, Eq. (20), with shares normalised to 1, summed in float64 in the given order.

    Integer tensors (BatchNorm's batch counter) have no meaningful mean: the first model's value is kept.
    """
    total = math.fsum(shares)
    if not models or total <= 0:
        raise ValueError("averaging needs at least one model and a positive total weight")
    averaged: Weights = {}
    for name, first in models[0].items():
        if not first.is_floating_point():
            averaged[name] = first.clone()
            continue
        mean = torch.zeros_like(first, dtype=torch.float64)
        for model, share in zip(models, shares, strict=True):
            mean.add_(model[name].to(torch.float64), alpha=share / total)
        averaged[name] = mean.to(first.dtype)
    return averaged


def model_distance(one: Weights, other: Weights, kind: Distance) -> float:
    """Return the distance of two models over their floating-point tensors, BatchNorm statistics included.

    normalised : Σ over tensors of ‖a - b‖₂ (the authors' code)
    raw : ‖a - b‖₂ over all entries (the paper)
    """
    norms = [
        float((one[name].to(torch.float64) - other[name].to(torch.float64)).norm())
        for name in one
        if one[name].is_floating_point()
    ]
    return math.fsum(norms) if kind == "normalised" else math.sqrt(math.fsum(n * n for n in norms))


def daagg_weights(
    models: Mapping[str, Weights],
    n_samples: Mapping[str, int],
    clean: Collection[str],
    kind: Distance = "normalised",
) -> dict[str, float]:
    """Return the share of each client, Eq. (18) and (19): n_k · exp(-d_k), summing to 1.

    d_k is 0 for a clean client and the distance to the nearest clean client for a noisy one; `normalised` divides by
    the largest, so the worst noisy client keeps e⁻¹ of its weight. With no clean client present there is no distance
    to measure, and with identical models none to speak of: both give plain sample-size weights.
    """
    present_clean = [client for client in models if client in clean]
    distance = dict.fromkeys(models, 0.0)
    if present_clean:
        for client in models:
            if client not in clean:
                distance[client] = min(model_distance(models[client], models[j], kind) for j in present_clean)
    largest = max(distance.values(), default=0.0)
    if kind == "normalised" and largest > 0:
        distance = {client: d / largest for client, d in distance.items()}
    raw = {client: n_samples[client] * math.exp(-distance[client]) for client in models}
    total = math.fsum(raw.values())
    return {client: share / total for client, share in raw.items()}
