"""A relabel round with ten clients: references averaged once, against once for every noisy client by d×d projectors."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.measure import Outcome, interleave
from fedsir.stages.relabel import ClassSpectra, References, aggregate_references, extract_spectra, relabel
from fedsir.stages.spectrum import class_features

N_CLASSES, D, RANK, N_CLEAN, N_NOISY, PER_CLIENT = 10, 512, 12, 3, 7, 1000


def run() -> Iterator[Outcome]:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(N_CLASSES, D, generator=generator)

    def client() -> tuple[Tensor, Tensor]:
        labels = torch.randint(N_CLASSES, (PER_CLIENT,), generator=generator)
        return (centres[labels] + 0.3 * torch.rand(PER_CLIENT, D, generator=generator)), labels

    clean, noisy = ([client() for _ in range(n)] for n in (N_CLEAN, N_NOISY))
    spectra = {
        str(k): extract_spectra(class_features(z, y, N_CLASSES), RANK, "after_block") for k, (z, y) in enumerate(clean)
    }

    def ours() -> list[Tensor]:
        references = aggregate_references(spectra, weight="count_gap_share", min_samples=50, min_strength=0.03)
        return [relabel(z, y, references).labels for z, y in noisy]

    def reference() -> list[Tensor]:
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
    directions, residuals = torch.zeros(N_CLASSES, D), torch.zeros(N_CLASSES, RANK, D)
    ranks = torch.zeros(N_CLASSES, dtype=torch.int64)
    for c in range(N_CLASSES):
        m_r, m_n = torch.zeros(D, D, dtype=torch.float64), torch.zeros(D, D, dtype=torch.float64)
        for s in everyone:
            weight = float(s.counts[c] * s.gaps[c] * s.leading_shares[c])
            v, basis = s.directions[c].double(), s.residuals[c, : int(s.residual_ranks[c])].double()
            m_r += weight * torch.outer(v, v)
            m_n += weight * basis.T @ basis
        directions[c] = torch.linalg.eigh(m_r)[1][:, -1]
        ranks[c] = min(RANK, sum(int(s.residual_ranks[c]) for s in everyone))
        residuals[c, : int(ranks[c])] = torch.linalg.eigh(m_n)[1][:, -int(ranks[c]) :].T.flip(0)
    return References(directions, residuals, ranks, torch.ones(N_CLASSES, dtype=torch.bool))
