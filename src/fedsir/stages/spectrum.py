"""The class-wise feature spectrum, Eq. (1): singular values and right singular vectors of each class's features.

A class of few samples is kept as it is, Z (n, d). A class of many is not: its Gram matrix ZᵀZ has the same right
singular vectors, is a sum over samples (so it can be gathered batch by batch while features stream past), and costs
the same however large the class is. Gram matrices are kept in float64: squaring loses half the digits, float64 has
them to lose. And everything is on the CPU, wherever features come from: MPS has no float64, and many a GPU is slow
at it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from fedsir.randomness import KeyedRandom

BLOCK = 128  # columns of a Gram matrix that are computed at once
FEW_VECTORS = 32  # so many are found in the time of one power iteration
MOST_STEPS = 200  # of a power iteration; they take about as long as a decomposition of 512 × 512
CONVERGED = 1e-13  # length of the last step


class ClassFeatures:
    """What is known of each class's features: never more than one d×d matrix per class, however many samples.

    n_classes : C
    n_features : d
    counts : (C,) int64, samples of each class
    """

    def __init__(self, n_classes: int, n_features: int) -> None:
        self.n_classes, self.n_features = n_classes, n_features
        self.counts = torch.zeros(n_classes, dtype=torch.int64, device="cpu")
        self._rows: list[list[Tensor]] = [[] for _ in range(n_classes)]  # of classes with few samples
        self._grams: dict[int, Tensor] = {}  # of the others; only blocks that touch the lower triangle count

    def include(self, features: Tensor, labels: Tensor) -> None:
        """Add samples with features (n, d) and labels (n,), from any device."""
        features, labels = features.cpu(), labels.cpu()
        counts = torch.bincount(labels, minlength=self.n_classes)
        by_class = features[labels.argsort(stable=True)].split(counts.tolist())
        for label in counts.nonzero().flatten().tolist():
            self._include(label, by_class[label])
        self.counts.add_(counts)

    def _include(self, label: int, rows: Tensor) -> None:
        if label not in self._grams and int(self.counts[label]) + len(rows) <= self.n_features:
            self._rows[label].append(rows.clone())  # a view would keep its whole batch alive
            return
        if label not in self._grams:
            self._grams[label] = torch.zeros(self.n_features, self.n_features, dtype=torch.float64, device="cpu")
            rows = torch.cat([*self._rows[label], rows])
            self._rows[label] = []
        rows, gram = rows.to(torch.float64), self._grams[label]
        for start in range(0, self.n_features, BLOCK):
            stop = start + BLOCK
            gram[start:stop, :stop].addmm_(rows[:, start:stop].T, rows[:, :stop])

    def n_kept(self, label: int) -> int:
        """Return how many numbers are kept of a class: n·d, or d² where that is no more."""
        kept = [self._grams[label]] if label in self._grams else self._rows[label]
        return sum(part.numel() for part in kept)

    def gram(self, label: int) -> Tensor:
        """Return ZᵀZ of a class, (d, d) float64."""
        if label in self._grams:
            lower = self._grams[label].tril()
            return lower + lower.tril(-1).T
        rows = self._few(label).to(torch.float64)
        return rows.T @ rows

    def spectrum(self, label: int) -> Spectrum:
        """Return the spectrum of one class; a class without samples has an empty one."""
        n_samples = int(self.counts[label])
        if label not in self._grams:
            # Nothing was squared, so the features' own precision does.
            _, singular_values, right_vectors = torch.linalg.svd(self._few(label), full_matrices=False)
            right_vectors = with_fixed_sign(right_vectors.to(torch.float64))
            return Spectrum(singular_values.to(torch.float64), right_vectors, n_samples)
        eigenvalues, eigenvectors = torch.linalg.eigh(self._grams[label], UPLO="L")
        rank = min(n_samples, self.n_features)
        # eigh sorts upwards; rounding can leave tiny negative eigenvalues where the true value is 0.
        singular_values = eigenvalues.flip(0)[:rank].clamp_min(0).sqrt()
        return Spectrum(singular_values, with_fixed_sign(eigenvectors.T.flip(0)[:rank]), n_samples)

    def leading(self, label: int) -> tuple[float, Tensor]:
        """Return σ₁ and the leading right singular vector (d,) of a class with samples; zeros if its features are.

        What `spectrum` begins with, to rounding, by power iteration: one vector takes far less than all of many.
        """
        is_squared = label in self._grams
        matrix = self.gram(label) if is_squared else self._few(label).to(torch.float64)
        vector = first_guess(self.n_features)
        for _ in range(MOST_STEPS if min(matrix.shape) > FEW_VECTORS else 0):
            image = matrix @ vector if is_squared else matrix.T @ (matrix @ vector)
            eigenvalue = image.norm()
            if eigenvalue == 0:
                return 0.0, torch.zeros_like(vector)
            image /= eigenvalue
            if (image - vector).norm() <= CONVERGED:
                return float(eigenvalue.sqrt()), with_fixed_sign(image[None])[0]
            vector = image
        # There are few to choose from, or σ₂ is close to σ₁ and only a decomposition tells the two apart.
        spectrum = self.spectrum(label)
        return float(spectrum.singular_values[0]), spectrum.right_vectors[0]

    def _few(self, label: int) -> Tensor:
        """Return the rows that are kept of a class, (n, d)."""
        return torch.cat([torch.zeros(0, self.n_features, device="cpu"), *self._rows[label]])


@dataclass(frozen=True)
class Spectrum:
    """One class's spectrum, largest first.

    singular_values : (r,) float64, r = min(n_samples, d)
    right_vectors : (r, d) float64, orthonormal rows; the sign makes the largest entry positive
    n_samples : samples behind it
    """

    singular_values: Tensor
    right_vectors: Tensor
    n_samples: int


def class_features(features: Tensor, labels: Tensor, n_classes: int) -> ClassFeatures:
    """Return what is known of each class from features (n, d) with labels (n,)."""
    collected = ClassFeatures(n_classes, features.shape[1])
    collected.include(features, labels)
    return collected


@lru_cache
def first_guess(n_features: int) -> Tensor:
    """Return the unit vector (d,) that power iterations begin with: random, so that no data are orthogonal to it."""
    generator = KeyedRandom(0, ("power iteration",)).for_torch()
    vector = torch.randn(n_features, generator=generator, dtype=torch.float64, device="cpu")
    return vector.div_(vector.norm())


def with_fixed_sign(rows: Tensor) -> Tensor:
    """Return rows (r, d), each negated if that makes its largest-magnitude entry positive."""
    if rows.numel() == 0:
        return rows
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    return torch.where(largest < 0, -rows, rows).contiguous()
