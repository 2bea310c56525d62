"""The class-wise feature spectrum, Eq. (1): singular values and right singular vectors of each class's features.

Nothing here forms an SVD of the (n, d) feature matrix Z. The Gram matrix ZᵀZ has the same right singular vectors,
is a sum over samples (so it can be gathered batch by batch while features stream past), and costs the same
however large the class is. Gram matrices are kept in float64: squaring loses half the digits, float64 has them to lose.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class ClassGrams:
    """Sums over the samples of each class; add two of them to join two sets of samples.

    grams : (C, d, d) float64, ZᵀZ of each class
    counts : (C,) int64, samples of each class
    """

    grams: Tensor
    counts: Tensor

    @classmethod
    def zeros(cls, n_classes: int, n_features: int) -> ClassGrams:
        """Return the sums over no samples at all."""
        grams = torch.zeros(n_classes, n_features, n_features, dtype=torch.float64)
        return cls(grams, torch.zeros(n_classes, dtype=torch.int64))

    def include(self, features: Tensor, labels: Tensor) -> None:
        """Add samples with features (n, d) and labels (n,) in place."""
        order = labels.argsort(stable=True)
        counts = torch.bincount(labels, minlength=len(self.counts))
        by_class = features[order].to(torch.float64).split(counts.tolist())
        for label in counts.nonzero().flatten().tolist():
            self.grams[label].addmm_(by_class[label].T, by_class[label])
        self.counts.add_(counts)

    def __add__(self, other: ClassGrams) -> ClassGrams:
        return ClassGrams(self.grams + other.grams, self.counts + other.counts)


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


def class_grams(features: Tensor, labels: Tensor, n_classes: int) -> ClassGrams:
    """Return the Gram matrix and count of each class for features (n, d) with labels (n,)."""
    grams = ClassGrams.zeros(n_classes, features.shape[1])
    grams.include(features, labels)
    return grams


def class_spectrum(grams: ClassGrams, label: int) -> Spectrum:
    """Return the spectrum of one class; a class without samples has an empty one."""
    gram, n_samples = grams.grams[label], int(grams.counts[label])
    eigenvalues, eigenvectors = torch.linalg.eigh(gram)
    rank = min(n_samples, gram.shape[0])
    # eigh sorts upwards; rounding can leave tiny negative eigenvalues where the true value is 0.
    singular_values = eigenvalues.flip(0)[:rank].clamp_min(0).sqrt()
    return Spectrum(singular_values, with_fixed_sign(eigenvectors.T.flip(0)[:rank]), n_samples)


def with_fixed_sign(rows: Tensor) -> Tensor:
    """Return rows (r, d), each negated if that makes its largest-magnitude entry positive."""
    if rows.numel() == 0:
        return rows
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    return torch.where(largest < 0, -rows, rows).contiguous()
