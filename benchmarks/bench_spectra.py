"""Class spectra of 50,000 × 512 features: Gram and eigh in one pass, against lists per class and full SVDs."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.measure import Outcome, interleave
from fedsir.experiment.provenance import cores
from fedsir.methods.local_training import GRAM_BATCHES
from fedsir.stages.spectrum import ClassGrams, class_spectrum

N, D, N_CLASSES, BATCH = 50_000, 512, 10, 256


def run() -> Iterator[Outcome]:
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(N, D, generator=generator)
    labels = torch.randint(N_CLASSES, (N,), generator=generator)

    torch.set_num_threads(cores())

    def ours() -> list[torch.Tensor]:
        grams = ClassGrams.zeros(N_CLASSES, D)
        for start in range(0, N, BATCH * GRAM_BATCHES):  # as features stream by on a client
            rows = slice(start, start + BATCH * GRAM_BATCHES)
            grams.include(features[rows], labels[rows])
        return [class_spectrum(grams, c).right_vectors for c in range(N_CLASSES)]

    def reference() -> list[torch.Tensor]:
        by_class: list[list[torch.Tensor]] = [[] for _ in range(N_CLASSES)]
        for batch, batch_labels in zip(features.split(BATCH), labels.split(BATCH), strict=True):
            for row, label in zip(batch, batch_labels, strict=True):
                by_class[int(label)].append(row)
        return [torch.linalg.svd(torch.stack(rows), full_matrices=False)[2] for rows in by_class]

    seconds, reference_seconds = interleave(ours, reference, repeats=2)
    yield Outcome(
        name="spectra",
        what=f"class spectra of {N:,} × {D} features, {N_CLASSES} classes",
        ours=seconds,
        reference=reference_seconds,
        unit="s",
        target=5,
    )
