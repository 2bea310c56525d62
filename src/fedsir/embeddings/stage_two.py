"""Stage II on features: which labels look wrong, and what they should be."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import reduce
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsir.data.arrays import as_column
from fedsir.embeddings.federation import Federation
from fedsir.embeddings.results import Identification, Relabelled
from fedsir.embeddings.stage_one import identify_in
from fedsir.errors import DataError
from fedsir.stages.bayes import SURE, Temperature, weigh_labels
from fedsir.stages.discriminant import (
    ClassMoments,
    Discriminant,
    class_moments,
    discriminant,
    discriminant_scores,
    with_missing_classes,
)
from fedsir.stages.relabel import aggregate_references, direction_scores, extract_spectra
from fedsir.stages.relabel import relabel as relabel_features
from fedsir.stages.spectrum import Labels

Rule = Literal["bayes", "direction", "residual", "agreement"]


def relabel(
    features: Any,
    labels: Any,
    clients: Any,
    found: Identification | Iterable[Hashable] | None = None,
    *,
    rule: Rule = "bayes",
    residual_rank: int = 12,
) -> Relabelled:
    """Return corrected labels for the noisy clients' samples, by what the clean clients' classes look like (Stage II).

    Parameters
    ----------
    features, labels, clients : as for `identify`
    found : what `identify` returned, or the noisy clients' names; by default `identify` is asked
    rule : "bayes" weighs what a sample looks like against what its label says, by how noisy the client is. The paper's
        rules look at features alone: "direction" takes the class whose mean direction is nearest, "residual" the class
        whose residual subspace explains least (it needs more samples of each class than there are features),
        "agreement" the class on which both agree, else the given label
    residual_rank : vectors of a residual subspace (L in the paper)
    """
    if rule not in ("bayes", "direction", "residual", "agreement"):
        raise DataError(f"rule must be 'bayes', 'direction', 'residual' or 'agreement', not {rule!r}")
    federation = Federation(features, labels, clients)
    found = identify_in(federation) if found is None else found
    noisy, clean = federation.groups(found)
    given = federation.labels
    corrected, score, is_undecided = given.copy(), np.full(len(given), 0.5), np.zeros(len(given), bool)
    rates: dict[str, float] = {}
    if rule == "bayes":
        known = found.temperature if isinstance(found, Identification) else None
        _weigh(federation, noisy, clean, known, corrected, score, is_undecided, rates)
    else:
        _compare(federation, noisy, clean, rule, residual_rank, corrected, score, is_undecided)
    is_changed = corrected != given
    as_given = as_column("labels", labels)
    names = np.empty(len(federation.classes), as_given.dtype)
    names[:] = federation.classes
    return Relabelled(
        labels=np.where(is_changed, names[corrected], as_given),
        score=score,
        is_undecided=is_undecided,
        is_changed=is_changed,
        rule=rule,
        noise_rate=federation.named(rates),
        clients=as_column("clients", clients),
        given=as_given,
    )


def _weigh(
    federation: Federation,
    noisy: set[int],
    clean: list[int],
    temperature: float | None,
    corrected: Labels,
    score: NDArray[np.float64],
    is_undecided: NDArray[np.bool_],
    rates: dict[str, float],
) -> None:
    """Fill in what Bayes says of every sample; clean clients get scores only, by what other clean ones look like."""
    belief = Temperature() if temperature is None else Temperature(temperature)
    samples, n_classes = federation.samples(), len(federation.classes)
    total = reduce(ClassMoments.__add__, (class_moments(*samples[str(k)], n_classes) for k in clean))
    of_noisy = (class_moments(*samples[str(k)], n_classes) for k in sorted(noisy))
    of_noisy_together = reduce(ClassMoments.__add__, of_noisy, total - total)

    def fitted_to(clean_sums: ClassMoments) -> Discriminant:
        return discriminant([with_missing_classes(clean_sums, of_noisy_together.counts, of_noisy_together.sums)])

    of_all = fitted_to(total)
    for key, (features, given) in samples.items():
        k = int(key)
        fitted = of_all
        if k in clean and len(clean) > 1:
            fitted = fitted_to(total - class_moments(features, given, n_classes))
        posterior = weigh_labels(discriminant_scores(features, fitted), given, belief=belief)
        rows = federation.rows(k)
        own = posterior.probabilities[np.arange(len(given)), given]
        score[rows] = np.where(posterior.is_judged, own, 0.5)
        if k in noisy:
            corrected[rows] = posterior.labels
            is_undecided[rows] = posterior.probabilities.max(axis=1) < SURE
            if posterior.noise_rate is not None:
                rates[key] = posterior.noise_rate


def _compare(
    federation: Federation,
    noisy: set[int],
    clean: list[int],
    rule: str,
    residual_rank: int,
    corrected: Labels,
    score: NDArray[np.float64],
    is_undecided: NDArray[np.bool_],
) -> None:
    """Fill in what the paper's scores say of every sample."""
    spectra = {
        key: extract_spectra(collected, residual_rank, "after_block")
        for key, collected in federation.class_features(only=clean)
    }
    references = aggregate_references(spectra, weight="count_gap_share", min_samples=5, min_strength=0.03)
    for k in range(len(federation.clients)):
        rows, (features, labels) = federation.rows(k), federation.of_client(k)
        score[rows] = _margin(direction_scores(features, references), labels)
        if k in noisy:
            fixed = relabel_features(features, labels, references, rule)
            corrected[rows], is_undecided[rows] = fixed.labels, fixed.is_undecided


def _margin(scores: NDArray[np.float32], given: Labels) -> NDArray[np.float64]:
    """Return ((own score - best other score) + 1) / 2, (n,), from scores (n, C) in [0, 1]; -inf is no score."""
    rows = np.arange(len(given))
    own = scores[rows, given].astype(np.float64)
    others = scores.copy()
    others[rows, given] = -np.inf
    best = others.max(axis=1).astype(np.float64)
    is_comparable = np.isfinite(own) & np.isfinite(best)
    difference = np.subtract(own, best, out=np.zeros(len(given)), where=is_comparable)
    margin: NDArray[np.float64] = ((difference + 1) / 2).clip(0, 1)
    return margin
