"""A relabel round with ten clients: references averaged once, against once for every noisy client by d×d projectors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Outcome, interleave
from fedsir.stages.relabel import ClassSpectra, References, aggregate_references, extract_spectra, relabel
from fedsir.stages.spectrum import Features, Labels, class_features, one_thread

N_CLASSES, D, RANK, N_CLEAN, N_NOISY, PER_CLIENT = 10, 512, 12, 3, 7, 1000


def run() -> Iterator[Outcome]:
    random = np.random.default_rng(0)
    centres = random.random((N_CLASSES, D), dtype=np.float32)

    def client() -> tuple[Features, Labels]:
        labels = random.integers(N_CLASSES, size=PER_CLIENT)
        return centres[labels] + 0.3 * random.random((PER_CLIENT, D), dtype=np.float32), labels

    clean, noisy = ([client() for _ in range(n)] for n in (N_CLEAN, N_NOISY))
    spectra = {
        str(k): extract_spectra(class_features(z, y, N_CLASSES), RANK, "after_block") for k, (z, y) in enumerate(clean)
    }

    def ours() -> list[Labels]:
        references = aggregate_references(spectra, weight="count_gap_share", min_samples=50, min_strength=0.03)
        return [relabel(z, y, references).labels for z, y in noisy]

    @one_thread()
    def reference() -> list[Labels]:
        return [relabel(z, y, by_projectors(list(spectra.values()))).labels for z, y in noisy]

    agree = all(bool((a == b).all()) for a, b in zip(ours(), reference(), strict=True))
    seconds, reference_seconds = interleave(ours, reference, repeats=3)
    yield Outcome(
        name="relabel",
        what=f"relabelling {N_NOISY} noisy clients × {PER_CLIENT} samples, d = {D}, {N_CLEAN} clean clients",
        ours=seconds,
        reference=reference_seconds,
        unit="s",
        target=5,
        details={"both give the same labels": agree},
    )


def by_projectors(everyone: list[ClassSpectra]) -> References:
    """Return the same references from sums of d×d projectors and their eigenvectors."""
    directions, residuals = np.zeros((N_CLASSES, D), np.float32), np.zeros((N_CLASSES, RANK, D), np.float32)
    ranks = np.zeros(N_CLASSES, np.int64)
    for c in range(N_CLASSES):
        m_r, m_n = np.zeros((D, D)), np.zeros((D, D))
        for s in everyone:
            weight = float(s.counts[c] * s.gaps[c] * s.leading_shares[c])
            v, basis = s.directions[c].astype(np.float64), s.residuals[c, : int(s.residual_ranks[c])].astype(np.float64)
            m_r += weight * np.outer(v, v)
            m_n += weight * basis.T @ basis
        directions[c] = np.linalg.eigh(m_r)[1][:, -1]
        ranks[c] = min(RANK, sum(int(s.residual_ranks[c]) for s in everyone))
        residuals[c, : int(ranks[c])] = np.linalg.eigh(m_n)[1][:, -int(ranks[c]) :].T[::-1]
    return References(directions, residuals, ranks, np.ones(N_CLASSES, bool))
