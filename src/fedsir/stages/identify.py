"""Stage I, identify, the client's half: two numbers that tell how much a client's classes overlap.

Wrong labels mix classes, so a noisy client's class directions point more alike than a clean client's.
The server's half, which splits the clients by these numbers, is in `fedsir.stages.split`.
"""

from __future__ import annotations

import math

import numpy as np

from fedsir.stages.spectrum import Array, ClassFeatures, one_thread
from fedsir.stages.split import OffDiagonal


def class_directions(collected: ClassFeatures, min_samples: int = 1) -> Array:
    """Return the leading right singular vector of each class, (C, d); rows of NaN where a class is not usable.

    A class is usable with at least `min_samples` samples. Where fewer than two classes are, all present ones count.
    """
    usable = collected.counts >= max(min_samples, 1)
    if usable.sum() < 2:
        usable = collected.counts > 0
    directions = np.full((collected.n_classes, collected.n_features), np.nan)
    for label in np.flatnonzero(usable).tolist():
        sigma, direction = collected.leading(label)
        if sigma > 0:  # features that are all zero point nowhere
            directions[label] = direction
    return directions


@one_thread()
def class_similarity(directions: Array) -> Array:
    """Return |v_c · v_c'|, Eq. (2), (C, C); NaN wherever one of the two classes is undefined."""
    return np.abs(directions @ directions.T)


def off_diagonal_stats(similarity: Array) -> OffDiagonal:
    """Return mean, Eq. (3), and energy, Eq. (4), over the pairs of observed classes; NaN with fewer than two."""
    observed = np.isfinite(similarity.diagonal())
    n_usable = int(observed.sum())
    if n_usable < 2:
        return OffDiagonal(math.nan, math.nan, n_usable)
    off_diagonal = similarity[observed][:, observed][~np.eye(n_usable, dtype=bool)]
    return OffDiagonal(float(off_diagonal.mean()), float(np.square(off_diagonal).mean()), n_usable)
