"""What each client's labels are worth, judged by the sums of all the others: the mathematics of an audit.

A client shares sums of its features by class, and gets the discriminant of everybody else. What it finds about single
samples stays with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

from fedsir.embeddings import Federation, Identification
from fedsir.stages.bayes import (
    ClassMoments,
    Discriminant,
    LabelPosterior,
    Temperature,
    class_moments,
    discriminant,
    discriminant_scores,
)
from fedsir.stages.noise_rates import FEWEST_OF_A_CLASS, SHARE_OF_FEATURES, UNKNOWN, VERDICT, weigh_by_others


def trust_by_verdict(found: Identification) -> dict[str, float]:
    """Return how much each client's sums count for what the others are judged by; keys are numbers, as text."""
    trust = {}
    for k, client in enumerate(found.n_samples):
        if client in found.noise_rate:
            trust[str(k)] = (1 - found.noise_rate[client][0]) ** VERDICT.trust_power
        else:
            trust[str(k)] = float(client not in found.noisy)
    return trust


def weigh_clients(
    federation: Federation, trust: Mapping[str, float], temperature: float | None
) -> Iterator[tuple[int, LabelPosterior]]:
    """Yield each client's number and what is known of its labels.

    Memory is that of three matrices d × d, however many clients there are: own sums are made anew when they are needed.
    """
    belief = UNKNOWN if temperature is None else Temperature(temperature)
    n_classes = len(federation.classes)

    def own_sums(k: int) -> ClassMoments:
        rows = federation.rows(k)
        return class_moments(federation.features[rows], federation.labels[rows], n_classes).scaled(trust[str(k)])

    numbers = range(len(federation.clients))
    total = reduce(ClassMoments.__add__, map(own_sums, numbers))
    for k in numbers:
        rows = federation.rows(k)
        scores = discriminant_scores(federation.features[rows], of_others(total, own_sums(k)))
        yield k, weigh_by_others(scores, federation.labels[rows], belief)


def of_others(total: ClassMoments, own: ClassMoments) -> Discriminant:
    """Return the discriminant of everybody but one client."""
    n_features = total.sums.shape[1]
    return discriminant([total - own], fewest=max(FEWEST_OF_A_CLASS, int(SHARE_OF_FEATURES * n_features)))
