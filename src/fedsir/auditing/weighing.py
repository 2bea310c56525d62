"""What each client's labels are worth, judged by the sums of all the others: the mathematics of an audit.

A client shares sums of its features by class, and gets the discriminant of everybody else. What it finds about single
samples stays with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsir.embeddings import Federation, Identification
from fedsir.stages.bayes import TEMPERATURES, LabelPosterior, label_log_likelihood, weigh_labels
from fedsir.stages.noise_rates import ALL_FOR_TEMPERATURE, FEWEST_FOR_TEMPERATURE, UNKNOWN
from fedsir.stages.spectrum import Array, Labels

MOST_STEPS = 2  # of half the grid's: Stage I has looked farther
STRENGTH = 300.0  # samples' worth of belief in symmetric noise in each row of a transition
TRUST_POWER = 4  # nearly all of a client's samples count at 1 % wrong labels, next to none at 90 %


def trust_by_verdict(found: Identification) -> dict[str, float]:
    """Return how much each client's sums count for what the others are judged by; keys are numbers, as text."""
    trust = {}
    for k, client in enumerate(found.n_samples):
        if client in found.noise_rate:
            trust[str(k)] = (1 - found.noise_rate[client][0]) ** TRUST_POWER
        else:
            trust[str(k)] = float(client not in found.noisy)
    return trust


def weigh_clients(
    federation: Federation, trust: Mapping[str, float], temperature: float | None
) -> Iterator[tuple[int, LabelPosterior]]:
    """Yield each client's number and what is known of its labels; its scores are kept, (n, C) in float32."""
    scores = {k: each.astype(np.float32) for k, each in federation.others.scores(trust)}  # what they were made in
    given = {k: labels for k, (_, labels) in federation.samples().items()}
    if temperature is not None:
        most = max(FEWEST_FOR_TEMPERATURE, ALL_FOR_TEMPERATURE // len(given))
        temperature = refined(temperature, [_some(each, given[k], most) for k, each in scores.items()])
    for k, each in scores.items():
        yield int(k), weigh_labels(each.astype(np.float64), given[k], STRENGTH, UNKNOWN, temperature=temperature)


def _some(scores: NDArray[np.float32], given: Labels, most: int) -> tuple[Array, Labels]:
    """Return scores and labels of at most so many samples, evenly spaced."""
    rows = np.unique(np.linspace(0, len(given) - 1, min(most, len(given))).astype(np.int64))
    return scores[rows].astype(np.float64), given[rows]


def refined(temperature: float, clients: Sequence[tuple[Array, Labels]]) -> float:
    """Return the temperature that all clients' labels together find likeliest, near one of a coarse grid.

    A step of that grid moves noise rates by 0.05. In its logarithm the likelihood is nearly a parabola, so its top is
    found from three points half a step apart. Only sums over clients are needed: one number each a temperature.
    """
    step = float(np.log(TEMPERATURES[1] / TEMPERATURES[0])) / 2
    known: dict[int, float] = {}

    def likelihood(place: int) -> float:
        if place not in known:
            at = np.array([temperature * np.exp(place * step)])
            known[place] = sum(float(label_log_likelihood(scores, given, at)[0]) for scores, given in clients)
        return known[place]

    top = 0
    for _ in range(MOST_STEPS):
        better = max((top - 1, top, top + 1), key=likelihood)
        if better == top:
            break
        top = better
    below, middle, above = (likelihood(place) for place in (top - 1, top, top + 1))
    curvature = below - 2 * middle + above
    shift = 0.5 * (below - above) / curvature if curvature < 0 else 0.0
    return float(temperature * np.exp((top + min(max(shift, -0.5), 0.5)) * step))
