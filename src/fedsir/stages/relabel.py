"""Stage II, relabel: clean clients' class directions and residual subspaces repair a noisy client's labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from fedsir.data.shapes import Shape
from fedsir.stages.spectrum import Array, ClassFeatures, Features, Labels, Spectrum, one_thread, with_fixed_sign

Float32 = NDArray[np.float32]
Booleans = NDArray[np.bool_]
ResidualVariant = Literal["after_block", "after_direction"]
WeightVariant = Literal["count_gap_share", "count"]


@dataclass(frozen=True)
class ClassSpectra:
    """What a clean client sends: for each of C classes its direction, residual subspace and reliability.

    directions : (C, d), leading right singular vector of each class's features; zeros for absent classes
    residuals : (C, L, d), orthonormal vectors of each residual subspace; zeros past `residual_ranks`
    residual_ranks : (C,) int64, how many of them there are
    counts : (C,) int64, samples behind each class
    gaps : (C,), (σ₁ - σ₂) / σ₁ of the class's singular values
    leading_shares : (C,), σ₁ / Σσ
    """

    directions: Annotated[Float32, Shape("classes", "features")]
    residuals: Annotated[Float32, Shape("classes", "residual rank", "features")]
    residual_ranks: Annotated[Labels, Shape("classes", kind="int")]
    counts: Annotated[Labels, Shape("classes", kind="int")]
    gaps: Annotated[Float32, Shape("classes")]
    leading_shares: Annotated[Float32, Shape("classes")]


@dataclass(frozen=True)
class References:
    """What clean clients teach noisy ones.

    directions : (C, d), v̄ of each class
    residuals : (C, L, d), rows of V̄, zero rows past `residual_ranks`
    residual_ranks : (C,) int64
    is_owned : (C,) bool, False for a class that no clean client owns
    """

    directions: Float32
    residuals: Float32
    residual_ranks: Labels
    is_owned: Booleans


@dataclass(frozen=True)
class Relabelling:
    """labels : (n,) corrected labels; is_undecided : (n,) bool, where the two scores name different classes."""

    labels: Labels
    is_undecided: Booleans


def residual_subspace(spectrum: Spectrum, rank: int, variant: ResidualVariant, block_ratio: float = 10.0) -> Array:
    """Return up to `rank` residual right singular vectors, (≤ rank, d).

    after_direction : those that follow the leading one (the paper)
    after_block : those that follow the dominant block, the first k* vectors whose singular values sum to at least
        `block_ratio` times the rest (the authors' code); empty when the block takes everything
    """
    start = 1 if variant == "after_direction" else dominant_block(spectrum.singular_values, block_ratio)
    return spectrum.right_vectors[start : start + rank]


def dominant_block(singular_values: Array, ratio: float) -> int:
    """Return k*, the smallest k with Σ_{i≤k} σ_i ≥ ratio · Σ_{i>k} σ_i."""
    total = singular_values.sum()
    head = singular_values.cumsum()
    # A relative 1e-12 forgives the rounding of cumsum, so that (10, 1) has k* = 1.
    reached = head * (1 + 1e-12) >= ratio * (total - head)
    return int(reached.argmax()) + 1


def extract_spectra(
    collected: ClassFeatures, rank: int, variant: ResidualVariant, block_ratio: float = 10.0, min_samples: int = 1
) -> ClassSpectra:
    """Return what a clean client sends, from the features of its classes (Algorithm 2).

    Of a class with fewer than `min_samples` samples nothing is in it: it looks like one that the client lacks.
    """
    n_classes, d = collected.n_classes, collected.n_features
    directions = np.zeros((n_classes, d), np.float32)
    residuals = np.zeros((n_classes, rank, d), np.float32)
    residual_ranks = np.zeros(n_classes, np.int64)
    gaps, leading_shares = np.zeros(n_classes, np.float32), np.zeros(n_classes, np.float32)
    for label in np.flatnonzero(collected.counts >= max(min_samples, 1)).tolist():
        spectrum = collected.spectrum(label)
        sigma = spectrum.singular_values
        if not sigma[0] > 0:
            continue  # all features are zero: no direction to speak of
        residual = residual_subspace(spectrum, rank, variant, block_ratio)
        directions[label] = spectrum.right_vectors[0]
        residuals[label, : len(residual)] = residual
        residual_ranks[label] = len(residual)
        gaps[label] = (sigma[0] - (sigma[1] if len(sigma) > 1 else 0.0)) / sigma[0]
        leading_shares[label] = sigma[0] / sigma.sum()
    counts = np.where(directions.any(axis=1), collected.counts, 0)
    return ClassSpectra(directions, residuals, residual_ranks, counts, gaps, leading_shares)


def fault_of(spectra: ClassSpectra) -> str | None:
    """Return what is wrong with the values of received spectra of the right types and shapes; None if nothing is."""
    ranks, rank = spectra.residual_ranks, spectra.residuals.shape[1]
    if bool(((ranks < 0) | (ranks > rank)).any()) or bool((spectra.counts < 0).any()):
        return "spectra: a residual rank or a count is out of range"
    lengths = np.linalg.norm(spectra.directions, axis=1)[spectra.counts > 0]
    return None if np.allclose(lengths, 1, atol=1e-3) else "spectra.directions: one is not of unit length"


def reliability(spectra: ClassSpectra, variant: WeightVariant) -> Array:
    """Return w_{k,c}, (C,): the sample count (the paper), or count · gap · leading share (the authors)."""
    counts = spectra.counts.astype(np.float64)
    return counts if variant == "count" else counts * spectra.gaps * spectra.leading_shares


def aggregate_references(
    spectra_by_client: Mapping[str, ClassSpectra],
    *,
    weight: WeightVariant,
    min_samples: int,
    min_strength: float,
) -> References:
    """Average clean clients' projectors class by class, Eq. (5) and (6), and keep their leading eigenvectors.

    Only clients with at least `min_samples` samples of a class take part. Where nobody has that many, or where the
    averaged direction is weak (λ₁ - λ₂ < `min_strength`), the client with most samples of the class speaks alone.
    """
    everyone = list(spectra_by_client.values())
    n_classes, rank, d = everyone[0].residuals.shape
    directions = np.zeros((n_classes, d), np.float32)
    residuals = np.zeros((n_classes, rank, d), np.float32)
    residual_ranks = np.zeros(n_classes, np.int64)
    counts = np.stack([spectra.counts for spectra in everyone])  # (K, C)
    weights = np.stack([reliability(spectra, weight) for spectra in everyone])
    for label in range(n_classes):
        if not counts[:, label].any():
            continue
        spokesman = everyone[int(counts[:, label].argmax())]
        direction, residual = _of_client(spokesman, label)
        takes_part = (counts[:, label] >= max(min_samples, 1)) & (weights[:, label] > 0)
        if takes_part.any():
            chosen = [(everyone[k], float(weights[k, label])) for k in np.flatnonzero(takes_part)]
            mean_direction, mean_residual, strength = _mean_subspaces(chosen, label, rank)
            if strength >= min_strength:
                direction, residual = mean_direction, mean_residual
        directions[label] = direction
        residuals[label, : len(residual)] = residual
        residual_ranks[label] = len(residual)
    return References(directions, residuals, residual_ranks, counts.sum(axis=0) > 0)


def _of_client(spectra: ClassSpectra, label: int) -> tuple[Features, Features]:
    return spectra.directions[label], spectra.residuals[label, : int(spectra.residual_ranks[label])]


def _mean_subspaces(chosen: list[tuple[ClassSpectra, float]], label: int, rank: int) -> tuple[Array, Array, float]:
    """Return (v̄, V̄, λ₁ - λ₂ of the mean projector) for one class."""
    total = sum(weight for _, weight in chosen)
    directions, residuals = zip(*(_of_client(spectra, label) for spectra, _ in chosen), strict=True)
    shares = [weight / total for _, weight in chosen]
    values, vectors = _leading([v[None] for v in directions], shares, 2)
    strength = float(values[0] - (values[1] if len(values) > 1 else 0.0))
    return vectors[0], _leading(list(residuals), shares, rank)[1], strength


@one_thread()
def _leading(bases: list[Features], shares: list[float], rank: int) -> tuple[Array, Array]:
    """Return the leading eigenvalues and eigenvectors (rows) of Σ share · BᵀB for orthonormal bases B.

    The stacked rows √share · B have that sum as their Gram matrix, so a thin SVD of the stack, (Σ rank, d),
    replaces an eigendecomposition of size d.
    """
    stack = np.concatenate([basis.astype(np.float64) * share**0.5 for basis, share in zip(bases, shares, strict=True)])
    if len(stack) == 0:
        return np.zeros(0), stack
    _, sigma, rows = np.linalg.svd(stack, full_matrices=False)
    kept = min(rank, int((sigma > 1e-9 * sigma[0]).sum())) if sigma[0] > 0 else 0
    return np.square(sigma[:kept]), with_fixed_sign(rows[:kept])


@one_thread()
def direction_scores(features: Features, references: References) -> Float32:
    """Return S⁽ʳ⁾, Eq. (7): |ẑ · v̄_c| with unit ẑ, (n, C); -inf for classes that no clean client owns."""
    raw: Float32 = features.astype(np.float32, copy=False)
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True).clip(min=1e-12)
    return np.where(references.is_owned, np.abs(unit @ references.directions.T), -np.float32(np.inf))


@one_thread()
def residual_scores(features: Features, references: References) -> Float32:
    """Return S⁽ⁿ⁾, Eq. (8): ‖V̄_c z‖ / √(rows of V̄_c), (n, C).

    A class that no clean client owns, or whose residual subspace is empty, scores +inf: without vectors the norm
    would be 0 and the class would win every argmin.
    """
    n_classes, rank, d = references.residuals.shape
    projected = features.astype(np.float32, copy=False) @ references.residuals.reshape(n_classes * rank, d).T
    norms = np.linalg.norm(projected.reshape(len(features), n_classes, rank), axis=2)
    ranks = references.residual_ranks
    scores = norms / np.sqrt(ranks.clip(min=1)).astype(np.float32)
    return np.where(references.is_owned & (ranks > 0), scores, np.float32(np.inf))


Rule = Callable[[Labels, Labels, Labels], Labels]

# A rule turns (class by direction, class by residual, given labels), each (n,), into corrected labels (n,).
RULES: dict[str, Rule] = {
    "direction": lambda by_direction, _by_residual, _given: by_direction,
    "residual": lambda _by_direction, by_residual, _given: by_residual,
    "agreement": lambda by_direction, by_residual, given: np.where(by_direction == by_residual, by_direction, given),
}


def relabel(features: Features, given: Labels, references: References, rule: str = "agreement") -> Relabelling:
    """Correct given labels (n,) from features (n, d), Algorithm 3. Where no class can be assigned, `given` stays."""
    by_direction = direction_scores(features, references)
    by_residual = residual_scores(features, references)
    # A feature of zeros lies nowhere; the direction rule alone can do without residuals.
    has_class = by_direction.max(axis=1) > 0
    has_class &= np.isfinite(by_residual.min(axis=1)) | (rule == "direction")
    first, second = by_direction.argmax(axis=1), by_residual.argmin(axis=1)
    labels = np.where(has_class, RULES[rule](first, second, given), given)
    return Relabelling(labels, (first != second) | ~has_class)
