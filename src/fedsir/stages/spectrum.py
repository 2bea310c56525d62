"""The class-wise feature spectrum, Eq. (1): singular values and right singular vectors of each class's features.

A class of few samples is kept as it is, Z (n, d). A class of many is not: its Gram matrix ZᵀZ has the same right
singular vectors, is a sum over samples (so it can be gathered batch by batch while features stream past), and costs
the same however large the class is. Gram matrices are kept in float64: squaring loses half the digits, float64 has
them to lose.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from fedsir.randomness import KeyedRandom

Array = NDArray[np.float64]
Features = NDArray[np.floating[Any]]
Labels = NDArray[np.int64]

FEW_VECTORS = 32  # so many are found in the time of one power iteration
MOST_STEPS = 200  # of a power iteration; they take about as long as a decomposition of 512 × 512
CONVERGED = 1e-13  # length of the last step
SMALLEST_SQUARE = 1e-8  # σ² as a share of the largest: below it, squaring leaves vectors less than 1e-8 orthogonal
LIBRARIES = ThreadpoolController()  # looks once for NumPy's; looking takes longer than a small decomposition


class _OneThread:
    """The limit on NumPy's threads, which is one of the whole process: who comes first sets it, the last lifts it."""

    def __init__(self) -> None:
        self._lock, self._n_inside, self._limit = Lock(), 0, ExitStack()

    def enter(self) -> None:
        with self._lock:
            if self._n_inside == 0:  # setting it anew takes longer than a small product
                self._limit.enter_context(LIBRARIES.limit(limits=1, user_api="blas"))
            self._n_inside += 1

    def leave(self) -> None:
        with self._lock:
            self._n_inside -= 1
            if self._n_inside == 0:
                self._limit.close()


ONE_THREAD = _OneThread()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, so that sums have one order on any machine; also a decorator."""
    ONE_THREAD.enter()
    try:
        yield
    finally:
        ONE_THREAD.leave()


class ClassFeatures:
    """What is known of each class's features: never more than one d×d matrix per class, however many samples.

    n_classes : C
    n_features : d
    counts : (C,) int64, samples of each class
    """

    def __init__(self, n_classes: int, n_features: int) -> None:
        self.n_classes, self.n_features = n_classes, n_features
        self.counts = np.zeros(n_classes, dtype=np.int64)
        self._rows: list[list[Features]] = [[] for _ in range(n_classes)]  # of classes with few samples
        self._grams: dict[int, Array] = {}  # of the others

    @one_thread()
    def include(self, features: Features, labels: Labels) -> None:
        """Add samples with features (n, d) and labels (n,)."""
        counts = np.bincount(labels, minlength=self.n_classes)
        by_class = np.split(features[np.argsort(labels, kind="stable")], np.cumsum(counts)[:-1])
        for label in np.flatnonzero(counts).tolist():
            self._include(label, by_class[label])
        self.counts += counts

    def _include(self, label: int, rows: Features) -> None:
        if label not in self._grams and int(self.counts[label]) + len(rows) <= self.n_features:
            self._rows[label].append(rows.copy())  # a view would keep its whole batch alive
            return
        if label not in self._grams:
            self._grams[label] = np.zeros((self.n_features, self.n_features))
            rows = np.concatenate([*self._rows[label], rows])
            self._rows[label] = []
        self._grams[label] += _gram(rows)

    def n_kept(self, label: int) -> int:
        """Return how many numbers are kept of a class: n·d, or d² where that is no more."""
        kept = [self._grams[label]] if label in self._grams else self._rows[label]
        return sum(part.size for part in kept)

    @one_thread()
    def gram(self, label: int) -> Array:
        """Return ZᵀZ of a class, (d, d)."""
        return self._grams[label] if label in self._grams else _gram(self._few(label))

    @one_thread()
    def spectrum(self, label: int) -> Spectrum:
        """Return the spectrum of one class; a class without samples has an empty one."""
        if label not in self._grams:
            singular_values, right_vectors = _of_few(self._few(label))
            return Spectrum(singular_values, with_fixed_sign(right_vectors))
        eigenvalues, eigenvectors = np.linalg.eigh(self._grams[label])
        rank = min(int(self.counts[label]), self.n_features)
        # eigh sorts upwards; rounding can leave tiny negative eigenvalues where the true value is 0.
        singular_values = np.sqrt(eigenvalues[::-1][:rank].clip(min=0))
        return Spectrum(singular_values, with_fixed_sign(eigenvectors.T[::-1][:rank]))

    @one_thread()
    def leading(self, label: int) -> tuple[float, Array]:
        """Return σ₁ and the leading right singular vector (d,) of a class with samples; zeros if its features are.

        What `spectrum` begins with, to rounding, by power iteration: one vector takes far less than all of many.
        """
        is_squared = label in self._grams
        matrix = self._grams[label] if is_squared else self._few(label)
        vector = first_guess(self.n_features)
        for _ in range(MOST_STEPS if min(matrix.shape) > FEW_VECTORS else 0):
            image = matrix @ vector if is_squared else matrix.T @ (matrix @ vector)
            eigenvalue = float(np.linalg.norm(image))
            if eigenvalue == 0:
                return 0.0, image
            image /= eigenvalue
            if np.linalg.norm(image - vector) <= CONVERGED:
                return eigenvalue**0.5, with_fixed_sign(image[None])[0]
            vector = image
        # There are few to choose from, or σ₂ is close to σ₁ and only a decomposition tells the two apart.
        spectrum = self.spectrum(label)
        return float(spectrum.singular_values[0]), spectrum.right_vectors[0]

    @one_thread()
    def energy(self, label: int) -> float:
        """Return ‖Z‖² of a class, the sum of its squared singular values."""
        squares = self._grams[label].diagonal() if label in self._grams else np.square(self._few(label))
        return float(squares.sum())

    @one_thread()
    def energy_along(self, label: int, directions: Array) -> Array:
        """Return ‖Z v‖² of a class for each row v of directions (m, d), (m,)."""
        if label in self._grams:
            along: Array = ((directions @ self._grams[label]) * directions).sum(axis=1)
        else:
            along = np.square(self._few(label) @ directions.T).sum(axis=0)
        return along

    def _few(self, label: int) -> Array:
        """Return the rows that are kept of a class, (n, d)."""
        return np.concatenate([np.zeros((0, self.n_features)), *self._rows[label]])


@dataclass(frozen=True)
class Spectrum:
    """One class's spectrum, largest first.

    singular_values : (r,), r = min(samples, d)
    right_vectors : (r, d), orthonormal rows; the sign makes the largest entry positive
    """

    singular_values: Array
    right_vectors: Array


def class_features(features: Features, labels: Labels, n_classes: int) -> ClassFeatures:
    """Return what is known of each class from features (n, d) with labels (n,)."""
    collected = ClassFeatures(n_classes, features.shape[1])
    collected.include(features, labels)
    return collected


def _gram(rows: Features) -> Array:
    exact: Array = rows.astype(np.float64, copy=False)
    return exact.T @ exact


def _of_few(rows: Array) -> tuple[Array, Array]:
    """Return σ (n,) and the right singular vectors (n, d) of rows (n, d), n ≤ d, by the smaller matrix ZZᵀ."""
    if len(rows) == 0:
        return np.zeros(0), rows
    eigenvalues, left = np.linalg.eigh(rows @ rows.T)
    if eigenvalues[0] <= SMALLEST_SQUARE * eigenvalues[-1]:  # rows that are almost dependent
        _, singular_values, right_vectors = np.linalg.svd(rows, full_matrices=False)
        return singular_values, right_vectors
    singular_values = np.sqrt(eigenvalues[::-1])
    return singular_values, left.T[::-1] @ rows / singular_values[:, None]


@lru_cache
def first_guess(n_features: int) -> Array:
    """Return the unit vector (d,) that power iterations begin with: random, so that no data are orthogonal to it."""
    vector = KeyedRandom(0, ("power iteration",)).for_numpy().standard_normal(n_features)
    unit: Array = vector / np.linalg.norm(vector)
    return unit


def with_fixed_sign(rows: Array) -> Array:
    """Return rows (r, d), each negated if that makes its largest-magnitude entry positive."""
    if rows.size == 0:
        return rows
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    return np.where(largest < 0, -rows, rows)
