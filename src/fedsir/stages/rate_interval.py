"""How sure the noise rate of a client is: its likelihood on a grid of rates, as an interval and as a probability."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsir.stages.bayes import LabelPosterior
from fedsir.stages.spectrum import Array, Labels

RATES = np.linspace(0.0, 0.9975, 400)
LEVEL = 0.95  # of the interval


def rate_log_likelihood(found: LabelPosterior, given: Labels) -> Array:
    """Return the log-likelihood of a client's given labels (n,) by noise rate, on RATES; where wrong labels go stays.

    p(given | x) = (1 - e) q(given) + e Σ_c q(c) R(given | c), q without the label, R the transition of wrong labels.
    """
    labels = given[found.is_judged]
    by_class = found.probabilities[found.is_judged] / found.transition.T[labels].clip(min=1e-12)
    by_class /= by_class.sum(axis=1, keepdims=True)
    wrong = found.transition - np.diag(found.transition.diagonal())
    wrong /= wrong.sum(axis=1, keepdims=True).clip(min=1e-12)
    is_right = by_class[np.arange(len(labels)), labels]
    is_wrong = (by_class * wrong.T[labels]).sum(axis=1)
    sums = np.zeros(len(RATES))
    for i, rate in enumerate(RATES.tolist()):
        sums[i] = np.log(((1 - rate) * is_right + rate * is_wrong).clip(min=1e-12)).sum()
    return sums


@dataclass(frozen=True)
class RateInterval:
    """Where a client's share of wrong labels lies, with probability LEVEL."""

    low: float
    high: float


def rate_interval(found: LabelPosterior, given: Labels, rate: float) -> RateInterval:
    """Return the interval of a client's noise rate, which contains the rate."""
    log_likelihood = rate_log_likelihood(found, given)
    belief = np.exp(log_likelihood - log_likelihood.max())
    below = np.cumsum(belief / belief.sum())
    low, high = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], below, RATES).tolist()
    return RateInterval(max(0.0, min(low, rate)), min(1.0, max(high, rate)))
