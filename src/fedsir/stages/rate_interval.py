"""How sure the noise rate of a client is: the likelihood of its labels on a grid of rates, as an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedsir.stages.bayes import LabelPosterior
from fedsir.stages.noise_rates import LIMIT, rate_log_likelihood
from fedsir.stages.spectrum import Array, Labels

RATES = np.linspace(0.0, 0.9975, 400)
LEVEL = 0.95  # of the interval
# Jeffreys' prior of a share near 0. If all rates were alike likely beforehand, a client with 3 % wrong labels would be
# expected among clients with far more, and its probability of being above LIMIT come out too high (docs/audit.md).
PRIOR = 1 / np.sqrt(RATES + (RATES[1] - RATES[0]) / 2)
MODEL_ERROR = 0.01  # standard deviation of what rates are off by, however many samples there are (docs/audit.md)


@dataclass(frozen=True)
class RateInterval:
    """A client's share of wrong labels.

    low, high : where it lies with probability LEVEL
    probability_noisy : how likely it is above LIMIT
    """

    rate: float
    low: float
    high: float
    probability_noisy: float


def rate_interval(found: LabelPosterior, given: Labels, model_error: float = MODEL_ERROR) -> RateInterval:
    """Return the noise rate of a client with given labels (n,), and its interval.

    The likelihood of a rate is blurred by the model's own error: scores are no true log-likelihoods, and more samples
    do not help against that. Low rates are likelier beforehand (PRIOR).
    """
    assert found.noise_rate is not None, "nothing could be judged"
    log_likelihood = rate_log_likelihood(found, given, RATES)
    likelihood = np.exp(log_likelihood - log_likelihood.max())
    belief = _blurred(likelihood / likelihood.sum(), model_error) * PRIOR
    belief /= belief.sum()
    below = np.cumsum(belief)
    low, high = np.interp([(1 - LEVEL) / 2, (1 + LEVEL) / 2], below, RATES).tolist()
    if belief[0] > (1 - LEVEL) / 2:  # no wrong label at all is as likely as that
        low = 0.0
    above = min(1.0, float(belief[RATES > LIMIT].sum()))  # rounding
    return RateInterval(found.noise_rate, min(low, found.noise_rate), max(high, found.noise_rate), above)


def _blurred(belief: Array, deviation: float) -> Array:
    """Return a belief on RATES when each rate may be off by a Gaussian error; what falls outside stays at the edge."""
    step = float(RATES[1] - RATES[0])
    reach = math.ceil(4 * deviation / step)
    if reach == 0:
        return belief
    kernel = np.exp(-np.square(np.arange(-reach, reach + 1) * step / deviation) / 2)
    wide = np.convolve(belief, kernel / kernel.sum())
    wide[reach] += wide[:reach].sum()
    wide[-reach - 1] += wide[-reach:].sum()
    inside: Array = wide[reach:-reach]
    return inside
