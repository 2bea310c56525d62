"""Stage I, identify, the client's half: two numbers that tell how much a client's classes overlap.

Wrong labels mix classes, so a noisy client's class directions point more alike than a clean client's.
The server's half, which splits the clients by these numbers, is in `fedsir.stages.split`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fedsir.stages.spectrum import ClassFeatures
from fedsir.stages.split import OffDiagonal


def class_directions(collected: ClassFeatures, min_samples: int = 1) -> Tensor:
    """Return the leading right singular vector of each class, (C, d); rows of NaN where a class is not usable.

    A class is usable with at least `min_samples` samples. Where fewer than two classes are, all present ones count.
    """
    usable = collected.counts >= max(min_samples, 1)
    if int(usable.sum()) < 2:
        usable = collected.counts > 0
    shape = (collected.n_classes, collected.n_features)
    directions = collected.counts.new_full(shape, torch.nan, dtype=torch.float64)
    for label in usable.nonzero().flatten().tolist():
        sigma, direction = collected.leading(label)
        if sigma > 0:  # features that are all zero point nowhere
            directions[label] = direction
    return directions


def class_similarity(directions: Tensor) -> Tensor:
    """Return |v_c · v_c'|, Eq. (2), (C, C); NaN wherever one of the two classes is undefined."""
    return (directions @ directions.T).abs()


def off_diagonal_stats(similarity: Tensor) -> OffDiagonal:
    """Return mean, Eq. (3), and energy, Eq. (4), over the pairs of observed classes; NaN with fewer than two."""
    observed = similarity.diagonal().isfinite()
    n_usable = int(observed.sum())
    if n_usable < 2:
        return OffDiagonal(math.nan, math.nan, n_usable)
    off_diagonal = similarity[observed][:, observed][~torch.eye(n_usable, dtype=torch.bool, device=similarity.device)]
    return OffDiagonal(float(off_diagonal.mean()), float(off_diagonal.square().mean()), n_usable)
