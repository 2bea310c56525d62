"""Stage III, train: logit-adjusted loss, distillation on noisy clients, distance-aware aggregation."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
Distance = Literal["normalised", "raw"]
HELD_BYTES, FEWEST_HELD = 2**26, 4  # clean models held at once for distances


def class_prior(labels: Tensor, n_classes: int, floor: int = 1) -> Tensor:
    """Return the share of each class, (C,), among labels (n,) or label probabilities (n, C).

    Absent classes count as `floor` samples.
    """
    counts = torch.bincount(labels, minlength=n_classes) if labels.dim() == 1 else labels.sum(dim=0)
    counts = counts.clamp_min(floor).to(torch.float32)
    return counts / counts.sum()


def logit_adjustment(prior: Tensor, strength: float = 1.0, epsilon: float = 1e-12) -> Tensor:
    """Return m = strength · log(prior + ε), (C,); strength is β in the paper."""
    return strength * torch.log(prior + epsilon)


def la_loss(logits: Tensor, labels: Tensor, adjustment: Tensor) -> Tensor:
    """Return the batch mean of CE(logits + m, labels), Eq. (11); labels are classes (n,) or probabilities (n, C)."""
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
    get the plain logit-adjusted loss; None distils all. Labels are classes (n,) or probabilities (n, C).
    """
    log_q = F.log_softmax(logits + adjustment, dim=1)
    nll = F.nll_loss(log_q, labels, reduction="none") if labels.dim() == 1 else -(labels * log_q).sum(dim=1)
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


def average_models(models: Iterable[Weights], shares: Sequence[float]) -> Weights:
    """Return Σ share · model, Eq. (20), with shares normalised to 1, summed in float64 in the given order.

    Models are read one at a time and not kept. Integer tensors (BatchNorm's batch counter) have no meaningful mean: the
    first model's value is kept.
    """
    total = math.fsum(shares)
    if not shares or total <= 0:
        raise ValueError("averaging needs at least one model and a positive total weight")
    sums: Weights = {}
    dtypes: dict[str, torch.dtype] = {}
    for model, share in zip(models, shares, strict=True):
        for name, tensor in model.items():
            if name not in sums:
                dtypes[name] = tensor.dtype
                is_float = tensor.is_floating_point()
                sums[name] = tensor.to(torch.float64) * (share / total) if is_float else tensor.clone()
            elif tensor.is_floating_point():
                sums[name].add_(tensor.to(torch.float64), alpha=share / total)
    return {name: tensor.to(dtypes[name]) for name, tensor in sums.items()}


def model_distance(one: Weights, other: Weights, kind: Distance) -> float:
    """Return the distance of two models over their floating-point tensors, BatchNorm statistics included.

    normalised : Σ over tensors of ‖a - b‖₂ (the authors' code)
    raw : ‖a - b‖₂ over all entries (the paper)
    """
    # The difference in the models' own precision, its norm in float64: half the memory of differing in float64.
    norms = [
        float(torch.linalg.vector_norm(one[name] - other[name], dtype=torch.float64))
        for name in one
        if one[name].is_floating_point()
    ]
    return math.fsum(norms) if kind == "normalised" else math.sqrt(math.fsum(n * n for n in norms))


def nearest_clean_distances(
    models: Mapping[str, Weights], clean: Collection[str], kind: Distance, at_once: int | None = None
) -> dict[str, float]:
    """Return d_k, Eq. (18), of each noisy client; empty when no clean client is present.

    Time is O(noisy · clean · model). At most `at_once` clean models (by default what fits into 64 MB, at least four)
    and one noisy one are held, however many clients there are, so that `models` may read them from disk; each noisy
    one is read ⌈clean / at_once⌉ times.
    """
    clean = frozenset(clean)
    noisy = [client for client in models if client not in clean]
    present_clean = [client for client in models if client in clean]
    nearest: dict[str, float] = {}
    start = 0
    while start < len(present_clean) and noisy:
        first = models[present_clean[start]]
        n_held = at_once or max(FEWEST_HELD, HELD_BYTES // max(_size(first), 1))
        others = (models[client] for client in present_clean[start + 1 : start + n_held])
        block = _stacked([first, *others])
        for client in noisy:
            distance = _distances_to_block(models[client], block, kind).min().item()
            nearest[client] = min(distance, nearest.get(client, math.inf))
        del first, block  # before the next one is read
        start += n_held
    return nearest


def _size(model: Weights) -> int:
    return sum(tensor.nbytes for tensor in model.values())


def _stacked(models: list[Weights]) -> Weights:
    """Return name → (models, …) of the floating-point tensors."""
    names = [name for name, tensor in models[0].items() if tensor.is_floating_point()]
    return {name: torch.stack([model[name] for model in models]) for name in names}


def _distances_to_block(model: Weights, block: Weights, kind: Distance) -> Tensor:
    """Return `model_distance` to each model of a block, (models,): all at once, tensor by tensor."""
    differences = (stacked - model[name] for name, stacked in block.items())
    norms = torch.stack(
        [torch.linalg.vector_norm(d.reshape(len(d), -1), dim=1, dtype=torch.float64) for d in differences]
    )
    return norms.sum(dim=0) if kind == "normalised" else norms.square().sum(dim=0).sqrt()


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
    distance = dict.fromkeys(models, 0.0) | nearest_clean_distances(models, clean, kind)
    largest = max(distance.values(), default=0.0)
    if kind == "normalised" and largest > 0:
        distance = {client: d / largest for client, d in distance.items()}
    raw = {client: n_samples[client] * math.exp(-distance[client]) for client in models}
    total = math.fsum(raw.values())
    return {client: share / total for client, share in raw.items()}
