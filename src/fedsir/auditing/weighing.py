"""What each client's labels are worth, judged by the sums of all the others: the mathematics of an audit.

A client shares sums of its features by class, and gets the discriminant of everybody else. What it finds about single
samples stays with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.embeddings import Federation, Identification
from fedsir.stages.bayes import TEMPERATURES, LabelPosterior, label_log_likelihood, weigh_labels
from fedsir.stages.noise_rates import ALL_FOR_TEMPERATURE, FEWEST_FOR_TEMPERATURE, UNKNOWN
from fedsir.stages.spectrum import Array, Labels

STEP = float(np.log(TEMPERATURES[1] / TEMPERATURES[0])) / 2  # in the logarithm of the temperature
MOST_STEPS = 2  # of half the grid's: Stage I has looked farther
STRENGTH = 300.0  # samples' worth of belief in symmetric noise in each row of a transition
TRUST_POWER = 4  # nearly all of a client's samples count at 1 % wrong labels, next to none at 90 %


def trust_of(rate: float | None, *, is_noisy: bool) -> float:
    """Return how much a client's sums count for what the others are judged by; without a rate the verdict decides."""
    return float(not is_noisy) if rate is None else (1 - rate) ** TRUST_POWER


def trust_by_verdict(found: Identification) -> dict[str, float]:
    """Return how much each client's sums count; keys are numbers, as text."""
    rates = {client: rate for client, (rate, _) in found.noise_rate.items()}
    return {
        str(k): trust_of(rates.get(client), is_noisy=client in found.noisy) for k, client in enumerate(found.n_samples)
    }


def weigh_clients(
    federation: Federation, trust: Mapping[str, float], temperature: float | None
) -> Iterator[tuple[int, LabelPosterior]]:
    """Yield each client's number and what is known of its labels; its scores are kept, (n, C) in float32."""
    scores = {k: each.astype(np.float32) for k, each in federation.others.scores(trust)}  # what they were made in
    given = {k: labels for k, (_, labels) in federation.samples().items()}
    if temperature is not None:
        most = most_for_refining(len(given))
        temperature = refined(
            temperature, lambda at: sum(log_likelihood(scores[k], given[k], np.array([at]), most)[0] for k in scores)
        )
    for k, each in scores.items():
        yield int(k), weighed(each.astype(np.float64), given[k], temperature)


def weighed(scores: Array, given: Labels, temperature: float | None) -> LabelPosterior:
    """Return what is known of a client's labels (n,) by its scores (n, C) and a temperature that all share."""
    return weigh_labels(scores, given, STRENGTH, UNKNOWN, temperature=temperature)


def most_for_refining(n_clients: int) -> int:
    """Return how many samples of each client are enough to tell the common temperature."""
    return max(FEWEST_FOR_TEMPERATURE, ALL_FOR_TEMPERATURE // n_clients)


def log_likelihood(scores: NDArray[np.floating[Any]], given: Labels, temperatures: Array, most: int) -> Array:
    """Return a client's log-likelihood by temperature, of at most so many of its samples, evenly spaced."""
    rows = np.unique(np.linspace(0, len(given) - 1, min(most, len(given))).astype(np.int64))
    return label_log_likelihood(scores[rows].astype(np.float64), given[rows], temperatures)


def temperatures_near(temperature: float) -> Array:
    """Return every temperature that `refined` may ask for."""
    return np.array([_at(temperature, place) for place in range(-MOST_STEPS - 1, MOST_STEPS + 2)])


def _at(temperature: float, place: float) -> float:
    return float(temperature * np.exp(place * STEP))


def refined(temperature: float, likelihood: Callable[[float], float]) -> float:
    """Return the temperature that all clients' labels together find likeliest, near one of a coarse grid.

    A step of that grid moves noise rates by 0.05. In its logarithm the likelihood is nearly a parabola, so its top is
    found from three points half a step apart.

    Parameters
    ----------
    likelihood : temperature → sum of all clients' log-likelihoods; no more is needed of a client than one number
    """
    known: dict[int, float] = {}

    def at(place: int) -> float:
        if place not in known:
            known[place] = likelihood(_at(temperature, place))
        return known[place]

    top = 0
    for _ in range(MOST_STEPS):
        better = max((top - 1, top, top + 1), key=at)
        if better == top:
            break
        top = better
    below, middle, above = (at(place) for place in (top - 1, top, top + 1))
    curvature = below - 2 * middle + above
    shift = 0.5 * (below - above) / curvature if curvature < 0 else 0.0
    return _at(temperature, top + min(max(shift, -0.5), 0.5))
