"""Stage I, identify, the client's half: numbers that tell how much a client's classes overlap.

Wrong labels mix classes, so a noisy client's class directions point more alike than a clean client's.
The server's half is in `fedsir.stages.split`, which splits clients by two numbers each, as the paper does, and in
`fedsir.stages.pairwise`, which compares them pair by pair of classes.
"""

from __future__ import annotations

import math

import numpy as np

from fedsir.stages.pairwise import PairSimilarities
from fedsir.stages.spectrum import Array, ClassFeatures, one_thread
from fedsir.stages.split import OffDiagonal

FEWEST_SAMPLES = 5  # of a class, from which the error of its direction can be told
LEAST_RELIABLE = 0.5  # share of a direction that must not be chance


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


@one_thread()
def pair_similarities(collected: ClassFeatures, directions: Array) -> PairSimilarities:
    """Return how alike every two classes are, and the error of that, from class directions (C, d) with rows of NaN.

    A direction that n samples give is off by a chance δ at right angles, E‖δ‖² = (‖Z‖² - σ₁²) / ((n - 1) σ₁²). So two
    classes look less alike than they are, by the factor √(r r') with r = 1 - E‖δ‖². It is divided out: else a client
    with few samples would look cleaner. The error is what δ amounts to along the other class's direction.
    """
    usable = np.flatnonzero(np.isfinite(directions).all(axis=1) & (collected.counts >= FEWEST_SAMPLES))
    seen, n = directions[usable], collected.counts[usable].astype(np.float64)
    along = np.array([collected.energy_along(label, seen) for label in usable.tolist()]).reshape(len(usable), -1)
    leading = along.diagonal()  # σ₁²
    total = np.array([collected.energy(label) for label in usable.tolist()])
    reliability = 1 - (total / leading - 1) / (n - 1)
    reliability = np.where(reliability >= LEAST_RELIABLE, reliability, np.nan)
    factor = np.sqrt(np.outer(reliability, reliability))
    cosine = np.abs(seen @ seen.T)
    across = (along - cosine**2 * leading[:, None]).clip(min=0)  # what is at right angles to a class's own direction
    variance = (
        across / (leading * (n - 3))[:, None]
    )  # n - 3: a variance known from n samples has the tails of Student's t
    similarity, error = (np.full((len(directions), len(directions)), np.nan, np.float32) for _ in range(2))
    similarity[np.ix_(usable, usable)] = (cosine / factor).clip(max=1)
    error[np.ix_(usable, usable)] = np.sqrt(variance + variance.T) / factor
    above = np.triu_indices(len(directions), 1)
    return PairSimilarities(similarity[above], error[above])
