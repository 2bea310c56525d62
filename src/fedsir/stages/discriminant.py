"""What the classes look like: a linear discriminant from sums of features.

Sums add up over clients, so the server needs nobody's own, and a secure sum would do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsir.data.shapes import Shape
from fedsir.stages.inverse import inverse_of_positive
from fedsir.stages.spectrum import Array, Features, Labels, one_thread

Float32 = NDArray[np.float32]
Booleans = NDArray[np.bool_]

SHRINKAGE = 0.2  # chosen with TRANSITION_STRENGTH of bayes.py (docs/plus.md)
FEWEST_OF_A_CLASS = 2  # samples; one alone has no spread
# Where some labels may be wrong a class needs more: the more features, the less a mean of few says.
FEWEST_OF_A_NOISY_CLASS, SHARE_OF_FEATURES = 20, 0.1
SMALLEST_VARIANCE = 1e-6


@dataclass(frozen=True)
class ClassMoments:
    """What a clean client sends: sums over its samples, which could be summed securely.

    counts : (C,) int64, samples of each class
    sums : (C, d), sum of the features of each class
    second_moment : (d, d), sum of x xᵀ over all samples
    """

    counts: Annotated[Labels, Shape("classes", kind="int")]
    sums: Annotated[Float32, Shape("classes", "features")]
    second_moment: Annotated[Float32, Shape("features", "features")]

    @property
    def fault(self) -> str | None:
        """What is wrong with the values of received sums of the right types and shapes; None if nothing is."""
        squares, largest = self.second_moment.diagonal(), float(np.abs(self.second_moment).max())
        if bool((self.counts < 0).any()):
            return "moments.counts: a count is negative"
        if bool((squares < 0).any()) or not np.allclose(self.second_moment, self.second_moment.T, atol=1e-3 * largest):
            return "moments.second_moment: it is not a sum of squares"
        return None

    def __add__(self, other: ClassMoments) -> ClassMoments:
        return ClassMoments(
            self.counts + other.counts, self.sums + other.sums, self.second_moment + other.second_moment
        )

    def __sub__(self, other: ClassMoments) -> ClassMoments:
        return ClassMoments(
            self.counts - other.counts, self.sums - other.sums, self.second_moment - other.second_moment
        )

    @property
    def worth(self) -> Array:
        """How many samples each class's mean is worth, (C,)."""
        return self.counts.astype(np.float64)

    def weighted(self, weight: float) -> WeightedMoments:
        """Return the sums with every sample counting `weight`."""
        return WeightedMoments(
            self.counts * weight,  # type: ignore[arg-type]
            self.sums * weight,
            self.second_moment * weight,
            _squares(self) * weight**2,
        )


@dataclass(frozen=True)
class WeightedMoments(ClassMoments):
    """Sums in which some samples count less than others; they never travel.

    squares : (C,), sum of the squared weights
    """

    squares: Array

    def __add__(self, other: ClassMoments) -> WeightedMoments:
        return WeightedMoments(**vars(super().__add__(other)), squares=self.squares + _squares(other))

    def __sub__(self, other: ClassMoments) -> WeightedMoments:
        return WeightedMoments(**vars(super().__sub__(other)), squares=self.squares - _squares(other))

    @property
    def worth(self) -> Array:
        """Kish's effective size: a hundred samples that all count 0.1 are as good as a hundred."""
        worth: Array = np.square(self.counts) / self.squares.clip(min=1e-12)
        return worth


def _squares(moments: ClassMoments) -> Array:
    return moments.squares if isinstance(moments, WeightedMoments) else moments.counts.astype(np.float64)


@dataclass(frozen=True)
class Discriminant:
    """What the clean clients' classes look like: scores s = W x + b, log-likelihoods up to what classes share.

    weights : (C, d), zeros for a class that is not owned
    biases : (C,)
    is_owned : (C,) bool, False for a class that clients have too few samples of
    """

    weights: Float32
    biases: Float32
    is_owned: Booleans


@one_thread()
def class_moments(features: Features, labels: Labels, n_classes: int) -> ClassMoments:
    """Return the sums over samples with features (n, d) and labels (n,), in float64."""
    exact: Array = features.astype(np.float64)
    is_of_class = labels[None, :] == np.arange(n_classes)[:, None]
    return ClassMoments(
        np.bincount(labels, minlength=n_classes),
        is_of_class.astype(np.float64) @ exact,
        exact.T @ exact,  # type: ignore[arg-type]
    )


def on_the_wire(moments: ClassMoments) -> ClassMoments:
    """Return the sums as they travel, in float32."""
    return ClassMoments(moments.counts, moments.sums.astype(np.float32), moments.second_moment.astype(np.float32))


@one_thread()
def discriminant(
    moments: Iterable[ClassMoments], shrinkage: float = SHRINKAGE, fewest: int = FEWEST_OF_A_CLASS
) -> Discriminant:
    """Return the linear discriminant of the classes: one mean each, one covariance for all of them.

    A class counts as owned from `fewest` samples on.

    A share `shrinkage` of the covariance is replaced by a multiple of the identity with the same trace, so that it can
    be inverted with fewer samples than features. A mean of few samples lies farther out than the true one; its bias
    takes that back on average.
    """
    pooled = _pooled(reduce(ClassMoments.__add__, moments), shrinkage, fewest)
    covariance = pooled.within / pooled.freedom
    shrunk = (1 - shrinkage) * covariance
    shrunk[np.diag_indices_from(shrunk)] += pooled.ridge
    right_sides = np.concatenate([pooled.means, covariance]).T  # (d, C + d)
    solved = np.linalg.solve(shrunk, right_sides)
    n_classes = len(pooled.means)
    return _discriminant(pooled, solved[:, :n_classes].T, float(np.trace(solved[:, n_classes:])))


@one_thread()
def discriminant_by_inverse(total: ClassMoments, fewest: int = FEWEST_OF_A_CLASS) -> Discriminant:
    """Return `discriminant` of sums in float64 to five digits or more, in a fifth of its time.

    Shrinkage keeps the condition of the covariance below 4d + 1, so float32 will do for its inverse. The trace needs no
    second system: the covariance is the shrunk one less a multiple of the identity.
    """
    pooled = _pooled(total, SHRINKAGE, fewest)
    shrunk = np.multiply(pooled.within, (1 - SHRINKAGE) / pooled.freedom, dtype=np.float32, casting="same_kind")
    shrunk[np.diag_indices_from(shrunk)] += np.float32(pooled.ridge)
    inverse = inverse_of_positive(shrunk)
    dimension = (len(inverse) - pooled.ridge * float(np.trace(inverse, dtype=np.float64))) / (1 - SHRINKAGE)
    return _discriminant(pooled, pooled.means.astype(np.float32) @ inverse, dimension)


@dataclass(frozen=True)
class _Pooled:
    """What a discriminant is made of: means (C, d), one covariance (d, d) as within / freedom, and its ridge."""

    worth: Array
    is_owned: Booleans
    means: Array
    within: Array
    freedom: float
    ridge: float


def _pooled(total: ClassMoments, shrinkage: float, fewest: int) -> _Pooled:
    counts = total.counts.astype(np.float64)
    is_owned = counts >= fewest - 1e-9  # weighted counts are rounded
    means, within, freedom = _scatter(total)
    # Features that do not vary within classes still have rounding: a share of their size keeps the inverse finite.
    size = float(np.trace(total.second_moment)) / max(counts.sum(), 1)
    variance = float((within.diagonal() / freedom).sum())
    scale = max(variance, SMALLEST_VARIANCE * size, SMALLEST_VARIANCE) / len(within)
    return _Pooled(total.worth, is_owned, means, within, freedom, shrinkage * scale)


def _scatter(total: ClassMoments) -> tuple[Array, Array, float]:
    """Return the mean of each class, (C, d), and the covariance that all share, (d, d), as a sum and its divisor."""
    counts, sums = total.counts.astype(np.float64), total.sums.astype(np.float64, copy=False)
    means: Array = sums / counts.clip(min=1)[:, None]
    within = total.second_moment.astype(np.float64, copy=False) - means.T @ sums
    return means, within, float(max(counts.sum() - (counts > 0.5).sum(), 1))


def _discriminant(pooled: _Pooled, weights: Features, dimension: float) -> Discriminant:
    """Return the discriminant from means in the metric of the inverse covariance, and its effective dimension."""
    weights = np.where(pooled.is_owned[:, None], weights, 0).astype(np.float64, copy=False)
    # E ‖m̂ - m‖² in that metric is the dimension over the samples behind the mean.
    too_far = dimension / pooled.worth.clip(min=1)
    biases = np.where(pooled.is_owned, (too_far - (weights * pooled.means).sum(axis=1)) / 2, 0)
    return Discriminant(weights.astype(np.float32), biases.astype(np.float32), pooled.is_owned)


@one_thread()
def with_missing_classes(clean: ClassMoments, counts: Labels, sums: Features) -> ClassMoments:
    """Return the clean clients' sums, with what noisy clients have of classes that no clean client owns.

    Wrong labels draw the mean of a class towards the others, and leave its direction. Its samples lie about that mean
    more widely than those of a class do, so it is given the spread of the clean clients' classes.

    Parameters
    ----------
    counts, sums : (C,), (C, d) of the noisy clients' samples by label
    """
    is_taken = is_missing(clean) & (counts >= fewest_of_a_noisy_class(sums.shape[1]))
    if not is_taken.any():
        return clean
    _, within, freedom = _scatter(clean)
    counts, sums = np.where(is_taken, counts, 0), np.where(is_taken[:, None], sums, 0).astype(np.float64)
    scatter = (sums / counts.clip(min=1)[:, None]).T @ sums + float(counts.sum() - is_taken.sum()) / freedom * within
    return clean + ClassMoments(counts, sums, scatter)


def is_missing(clean: ClassMoments) -> Booleans:
    """Return which classes, (C,), the clean clients do not own."""
    missing: Booleans = clean.counts < FEWEST_OF_A_CLASS
    return missing


def fewest_of_a_noisy_class(n_features: int) -> int:
    """Return how many samples of a class it takes to judge by them where some of their labels may be wrong."""
    return max(FEWEST_OF_A_NOISY_CLASS, int(SHARE_OF_FEATURES * n_features))


@one_thread()
def discriminant_scores(features: Features, fitted: Discriminant) -> Array:
    """Return s, (n, C); -inf for classes that are not owned."""
    scores = features.astype(np.float32, copy=False) @ fitted.weights.T + fitted.biases
    return np.where(fitted.is_owned, scores, -np.inf).astype(np.float64)
