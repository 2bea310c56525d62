"""Stage II as the paper has it: clean clients send class spectra, noisy clients correct labels by what is averaged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.methods.local_training import class_features_of, relabel_client
from fedsir.methods.replies import ClientId, FieldOf
from fedsir.stages.relabel import ClassSpectra, References, aggregate_references, extract_spectra

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.methods.base import Client, Federation
    from fedsir.methods.fedsir import Taught
    from fedsir.methods.fedsir_settings import FedSIRConfig


def taught(config: FedSIRConfig, client: Client, module: nn.Module) -> dict[str, ClassSpectra]:
    """Return what a clean client sends of its classes (Algorithm 2), as a field of `Taught`."""
    collected, relabel = class_features_of(client, module), config.relabel
    spectra = extract_spectra(
        collected, config.sent_residual_rank, relabel.residual, relabel.block_ratio, config.min_class_samples
    )
    if config.share == "minimal" and relabel.weight == "count":
        nothing = np.zeros_like(spectra.gaps)
        spectra = replace(spectra, gaps=nothing, leading_shares=nothing)
    return {"spectra": spectra}


def gathered(
    config: FedSIRConfig, from_clean: Mapping[ClientId, Taught], fed: Federation, ask_noisy: object
) -> dict[str, Any] | None:
    """Return the average of the clean clients' spectra as a payload; None without any. Noisy clients are not asked."""
    del ask_noisy
    spectra_by_client, relabel, rank = {}, config.relabel, config.sent_residual_rank
    for k, spectra in FieldOf("spectra", from_clean).items():
        if spectra is None or spectra.residuals.shape[1] != rank:
            fed.reject(k, f"its spectra do not have {rank} residual vectors per class")
        else:
            spectra_by_client[k] = spectra
    if not any(spectra.counts.any() for spectra in spectra_by_client.values()):
        return None
    _note_few_images(config, spectra_by_client, fed)
    references = aggregate_references(
        spectra_by_client, weight=relabel.weight, min_samples=relabel.min_samples, min_strength=relabel.min_strength
    )
    return vars(references)


def _note_few_images(config: FedSIRConfig, spectra_by_client: Mapping[ClientId, ClassSpectra], fed: Federation) -> None:
    counts = np.sum([spectra.counts for spectra in spectra_by_client.values()], axis=0)
    n_features = next(iter(spectra_by_client.values())).directions.shape[1]
    few = [int(n) for n in counts if 0 < n < n_features]
    if few and config.relabel.rule != "direction":
        # Directions do not suffer from it: docs/results.md has the measurement.
        fed.record(
            note=f"clean clients have {min(few):,} to {max(few):,} images of {len(few)} of {len(counts)} classes, "
            f"fewer than the {n_features} features: residual subspaces say little there, and "
            "method.relabel.rule=direction does without them"
        )


def corrected(
    config: FedSIRConfig, client: Client, module: nn.Module, references: dict[str, Tensor]
) -> dict[str, Tensor]:
    """Return what a noisy client remembers of its corrected labels (Algorithm 3)."""
    as_arrays = References(**{name: tensor.numpy() for name, tensor in references.items()})
    labels, is_undecided = relabel_client(client, module, as_arrays, config.relabel.rule)
    return {"corrected_labels": labels, "is_undecided": is_undecided}
