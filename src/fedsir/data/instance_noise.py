"""Instance-dependent noise: what an image looks like decides which wrong label it gets.

The usual generator (X. Xia et al., Part-dependent Label Noise, 2020, Algorithm 2), client by client. For an image x of
true class y on a client with noise rate r:

1. Its flip rate q is drawn from N(r, 0.1²), truncated to [r - h, r + h] with h = min(r, 1 - r).
2. It flips with probability q.
3. If it flips, it is given class c ≠ y with probability softmax(x · w_yc over all c ≠ y), where x holds the pixels,
   standardised per channel, and every w_yc ~ N(0, I) is one random projection for the whole federation.

Two things differ from the usual: the truncation is to [0, 1] there, which pulls the mean rate to 1/2; and flips are
independent there. Here a class of a client flips as often as its q add up to, up to rounding.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fedsir.data.arrays import Floats, Images, Index, Labels
    from fedsir.data.preprocessing import Preprocessing
    from fedsir.randomness import KeyedRandom

SPREAD = 0.1  # standard deviation of the flip rates before they are truncated
# A piece of 1,024 images by 1,024 pixels is 8 MB, whatever the data set.
IMAGES_AT_ONCE = 1024
PIXELS_AT_ONCE = 1024


def instance_dependent(
    labels: Labels,
    parts: Sequence[Index],
    rates: Mapping[int, float],
    streams: Mapping[int, KeyedRandom],
    images: Images,
    rows: Index,
    preprocessing: Preprocessing,
    n_classes: int,
    random: KeyedRandom,
) -> Labels:
    """Return all labels after the noise of the clients in ``rates``.

    Parameters
    ----------
    labels : (n,) true labels
    parts : per client, the positions of its samples
    rates, streams : noisy client's number → its noise rate, its stream
    images : (m, channels, height, width)
    rows : (n,) row of ``images`` of each sample
    random : the stream of the projections
    """
    given = labels.copy()
    for c in range(n_classes):
        flipped, luck = [], []
        for k, rate in rates.items():
            rng = streams[k].derive("class", c).for_numpy()
            flipped.append(_flips(parts[k][labels[parts[k]] == c], rate, rng))
            luck.append(rng.gumbel(size=(len(flipped[-1]), n_classes)))
        positions = np.concatenate(flipped)
        # The largest of logits + Gumbel noise is a draw from their softmax.
        drawn = np.concatenate(luck)
        drawn += _logits(images, rows[positions], preprocessing, n_classes, random.derive("class", c))
        drawn[:, c] = -np.inf
        given[positions] = drawn.argmax(axis=1)
    return given


def _flips(positions: Index, rate: float, rng: np.random.Generator) -> Index:
    """Return which of one client's samples of a class, (n,), flip: each with its own probability around the rate."""
    flip_rates = _flip_rates(len(positions), rate, rng)
    order = rng.permutation(positions)
    # Laid end to end from a random start, the flip rates pass a whole number once per flip (systematic sampling).
    passed = np.floor(rng.random() + np.cumsum(flip_rates))
    return order[np.diff(passed, prepend=0.0) > 0]


def _flip_rates(n: int, rate: float, rng: np.random.Generator) -> Floats:
    """Return (n,) draws from the truncated normal distribution around the rate, by the inverse of its distribution."""
    around, reach = NormalDist(rate, SPREAD), min(rate, 1 - rate)
    shares = rng.uniform(around.cdf(rate - reach), around.cdf(rate + reach), size=n)
    drawn = np.array([around.inv_cdf(share) for share in shares], np.float64)
    return drawn.clip(rate - reach, rate + reach)  # the last bit


def _logits(images: Images, rows: Index, preprocessing: Preprocessing, n_classes: int, random: KeyedRandom) -> Floats:
    """Return (len(rows), n_classes) projections of standardised images, pixels by the piece."""
    flat, rng = images.reshape(len(images), -1), random.for_numpy()  # (m, pixels), no copy
    n_per_channel = flat.shape[1] // len(preprocessing.mean)
    mean, std = (255 * np.repeat(values, n_per_channel) for values in (preprocessing.mean, preprocessing.std))
    logits = np.zeros((len(rows), n_classes))
    for first in range(0, flat.shape[1], PIXELS_AT_ONCE):
        pixels = slice(first, first + PIXELS_AT_ONCE)
        projection = rng.standard_normal((len(mean[pixels]), n_classes))
        for start in range(0, len(rows), IMAGES_AT_ONCE):
            some = slice(start, start + IMAGES_AT_ONCE)
            logits[some] += (flat[rows[some], pixels] - mean[pixels]) / std[pixels] @ projection
    return logits
