"""Class centroids of features, and a loss guided by them: the mathematics of RoFL (Yang et al., 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

_SLIGHT = 1e-8  # weight of a client whose centroid points away from the common one


def class_sums(features: Tensor, labels: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum of the features (n, d) of each class, (C, d), and how many there are, (C, 1)."""
    is_of_class = labels == torch.arange(n_classes, device=labels.device)[:, None]  # (C, n)
    belongs = is_of_class.to(features.dtype)
    return belongs @ features, belongs.sum(dim=1, keepdim=True)


def class_means(features: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Return the mean feature of each class, (C, d); zeros for a class without samples."""
    sums, counts = class_sums(features, labels, n_classes)
    return sums / counts.clamp_min(1)


@torch.no_grad()
def first_look(
    stream: Iterable[tuple[Tensor, Tensor]], head: Callable[[Tensor], Tensor], n_classes: int
) -> tuple[Tensor, Tensor]:
    """Return the classes that `head` gives the features, (n,), and the class means under the given labels, (C, d).

    stream : batches of (features (b, d), given labels (b,))
    """
    predicted, sums, counts = [], [], []
    for features, labels in stream:
        predicted.append(head(features).argmax(dim=1))
        batch_sums, batch_counts = class_sums(features, labels, n_classes)
        sums.append(batch_sums)
        counts.append(batch_counts)
    return torch.cat(predicted), torch.stack(sums).sum(dim=0) / torch.stack(counts).sum(dim=0).clamp_min(1)


def is_known(centroids: Tensor) -> Tensor:
    """Return which classes have a centroid, (C,); zeros stand for a class nobody has seen."""
    return centroids.abs().sum(dim=1) > 0


def nearest(features: Tensor, centroids: Tensor) -> Tensor:
    """Return the class of the centroid with the highest cosine, (n,), for features (n, d); unknown ones never win."""
    cosine = F.normalize(features) @ F.normalize(centroids).T  # (n, C)
    return cosine.masked_fill(~is_known(centroids), -torch.inf).argmax(dim=1)


def moved(centroids: Tensor, batch_means: Tensor) -> Tensor:
    """Return (1 - s²) · centroid + s² · batch mean with s their cosine, (C, d); s = 0 without samples of a class."""
    share = F.cosine_similarity(centroids, batch_means, dim=1).square()[:, None]
    return (1 - share) * centroids + share * batch_means


def agreed(previous: Tensor | None, told: Iterable[Tensor], n_samples: Sequence[int]) -> Tensor:
    """Return the server's centroids, (C, d), from those of the clients, each (C, d).

    A client counts for a class by the cosine of its centroid with the previous common one, not less than zero. Where
    there is no previous one, clients count by their samples, those without a centroid not at all.
    """
    total = weight = torch.zeros((), device="cpu")  # on the server
    before = None if previous is None else previous.to(torch.float64)
    for centroids, n in zip(told, n_samples, strict=True):
        own = centroids.to(torch.float64)
        share = n * is_known(own).to(torch.float64)  # (C,)
        if before is not None:
            cosine = F.cosine_similarity(before, own, dim=1)
            share = torch.where(is_known(before), cosine.clamp_min(0) + _SLIGHT, share)
        total, weight = total + share[:, None] * own, weight + share[:, None]
    return (total / torch.where(weight > 0, weight, 1)).to(torch.float32)


def small_loss(logits: Tensor, labels: Tensor, forget_rate: float) -> Tensor:
    """Return the rows, (m,), of the ⌊(1 - forget rate) · n⌋ samples with the smallest loss; at least one."""
    n_kept = max(1, int((1 - forget_rate) * len(labels) + 1e-9))  # 0.8 · 5 is 4, whatever floats say
    return F.cross_entropy(logits.detach(), labels, reduction="none").argsort(stable=True)[:n_kept]


def guided_loss(
    logits: Tensor,
    features: Tensor,
    labels: Tensor,
    pseudo_labels: Tensor | None,
    centroids: Tensor,
    *,
    central_weight: float,
    entropy_weight: float,
) -> tuple[Tensor, Tensor]:
    """Return the loss and which samples are confident, (n,): those whose nearest centroid is that of their label.

    cross-entropy : to the label where confident, else to the pseudo-label (to the label too if those are None)
    central_weight : of the mean square per entry of (feature - centroid of its label), over confident samples
    entropy_weight : of the mean entropy of the predictions
    """
    is_confident = nearest(features.detach(), centroids) == labels
    target = labels if pseudo_labels is None else torch.where(is_confident, labels, pseudo_labels)
    log_p = F.log_softmax(logits, dim=1)
    loss = F.nll_loss(log_p, target) - entropy_weight * (log_p.exp() * log_p).sum(dim=1).mean()
    if central_weight > 0:
        apart = (features - centroids[labels]).square().mean(dim=1)
        loss = loss + central_weight * (is_confident * apart).mean()
    return loss, is_confident
