"""Stage I, identify, by pairs: the server compares clients class pair by class pair instead of by two numbers each.

How alike two classes are depends on the classes far more than on the client, so a client's mean similarity depends on
which classes it has. Here every pair is compared with the same pair elsewhere. With ℓ = atanh of a similarity, Eq. (2),

    ℓ[client, pair] ≈ effect of the pair + effect of the client

Wrong labels draw all class means towards their common mean. With a share a of them every distance between two is
multiplied by 1 - a, which adds -log(1 - a) to ℓ whatever the pair: a noisy client stands out by its effect. Not in the
paper; docs/stages.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsir.data.shapes import Shape
from fedsir.stages.spectrum import Array, one_thread
from fedsir.stages.split import ClientSplit, OffDiagonal, PairEvidence, split_clients

Float32 = NDArray[np.float32]
Booleans = NDArray[np.bool_]

ERRORS = (1e-3, 0.5)  # of a similarity: a client that claims less or more is not believed
PAIR_SPREAD = 0.02  # of ℓ: no pair counts as known better, so that no client outweighs the others by its claims
SHARED = 0.25  # correlation of the errors of two pairs that share a class; 0.23 to 0.24 on CIFAR-10 and CIFAR-100
CLEAN_SPREAD = (1.75, 0.0225)  # of clean clients' effects: per unit of what they differ in single pairs, and at least
LEAST_RISE = 0.05  # of an effect: fewer than about 5 % wrong labels are not worth an accusation
NOISY_SPREADS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)  # how much wider than the clean clients' the noisy ones' effects may be
AT_ONCE = 256  # clients whose residuals are in memory together
NOTHING_SHARED = "no two clients share a pair of classes, so they were compared by two numbers each"
ALONE = "it shares no pair of classes with the clients that were compared"


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class PairSimilarities:
    """How alike every two classes of a client are; P = C(C-1)/2 pairs in the order (0, 1), (0, 2), …, (1, 2), …

    similarity : (P,) float32, that of two class directions, Eq. (2), as more samples would have it; NaN where a class
        has too few
    error : (P,) float32, standard error of each similarity; NaN likewise
    """

    similarity: Annotated[Float32, Shape("pairs", has_gaps=True)]
    error: Annotated[Float32, Shape("pairs", has_gaps=True)]

    @property
    def fault(self) -> str | None:
        """What is wrong with the numbers; None if nothing is."""
        gaps = np.isnan(self.similarity)
        if not np.array_equal(gaps, np.isnan(self.error)):
            return "its similarities and their errors lack different pairs of classes"
        similarity, error = self.similarity[~gaps], self.error[~gaps]
        if ((similarity < 0) | (similarity > 1)).any():
            return "one of its class similarities is not in [0, 1]"
        return "the error of one of its class similarities is negative" if (error < 0).any() else None


@dataclass(frozen=True, eq=False)
class ClientEffects:
    """How much more alike each client's pairs of classes are than the others'.

    effect : (K,), in ℓ; only differences mean something
    error : (K,), their standard errors, for want of more samples
    spread : how far the effects of clean clients differ beyond that
    """

    effect: Array
    error: Array
    spread: float


def split_by_pairs(
    statistics: Mapping[str, OffDiagonal],
    pairs: Mapping[str, PairSimilarities | None],
    missing: Mapping[str, str] | None = None,
) -> ClientSplit:
    """Split clients into clean and noisy by the effects that explain how alike their pairs of classes are.

    Clients are noisy only where two groups are more likely than one. Who shares no pair with the largest group of
    clients that do share is not assessed. Where nobody shares one, clients are split by two numbers, as with "auto",
    and the split's note says so.

    Parameters
    ----------
    statistics : client id → mean and energy, for the record
    pairs : client id → its pairs of classes, which it may have left out
    missing : client id → reason, for clients that never answered; they join the not assessed
    """
    not_assessed = dict(missing or {})
    heard: dict[str, PairSimilarities] = {}
    for client, stats in statistics.items():
        sent = pairs[client]
        fault = stats.fault or ("it sent no pairs of classes" if sent is None else sent.fault)
        if fault is None and sent is not None:
            heard[client] = sent
        else:
            not_assessed[client] = str(fault)
    values, weights = _tables(list(heard.values()))
    is_linked = _largest_group(weights)
    if is_linked.sum() < 2:
        return split_clients(statistics, "auto", not_assessed, note=NOTHING_SHARED if len(heard) > 1 else "")
    not_assessed |= {client: ALONE for client, is_in in zip(heard, is_linked, strict=True) if not is_in}
    assessed = [client for client in heard if client not in not_assessed]
    found = _fitted(*((values, weights) if is_linked.all() else (values[is_linked], weights[is_linked])))
    evidence, posterior = weigh_groups(found)
    is_noisy = evidence.is_convincing & (posterior > 0.5)
    variance = found.error**2 + found.spread**2
    above_clean = found.effect - np.average(found.effect[~is_noisy], weights=1 / variance[~is_noisy])
    return ClientSplit(
        clean=tuple(client for client, is_so in zip(assessed, is_noisy, strict=True) if not is_so),
        noisy=tuple(client for client, is_so in zip(assessed, is_noisy, strict=True) if is_so),
        statistics={client: (stats.mean, stats.energy) for client, stats in statistics.items()},
        posterior_noisy=dict(zip(assessed, posterior.tolist(), strict=True)),
        not_assessed=not_assessed,
        evidence=evidence,
        has_two_groups=evidence.is_convincing,
        effects=dict(zip(assessed, zip(above_clean.tolist(), np.sqrt(variance).tolist(), strict=True), strict=True)),
    )


def client_effects(pairs: Sequence[PairSimilarities]) -> ClientEffects:
    """Return the effects of clients that are linked by pairs they share, K of them."""
    return _fitted(*_tables(pairs))


def _tables(pairs: Sequence[PairSimilarities]) -> tuple[Array, Array]:
    """Return ℓ of each client's pairs, and how much each counts, both (K, P) with P = C(C-1)/2; a gap counts 0."""
    n_pairs = len(pairs[0].similarity) if pairs else 0
    values, weights = np.zeros((len(pairs), n_pairs)), np.zeros((len(pairs), n_pairs))
    for row, sent in enumerate(pairs):
        seen = ~np.isnan(sent.similarity)
        error = sent.error[seen].astype(np.float64).clip(*ERRORS)
        # What is within one error of 1 cannot be told from 1, where ℓ is infinite.
        similarity = np.minimum(sent.similarity[seen].astype(np.float64), 1 - error)
        values[row, seen] = np.arctanh(similarity)
        weights[row, seen] = 1 / ((error / (1 - similarity**2)) ** 2 + PAIR_SPREAD**2)
    return values, weights


def _largest_group(weights: Array) -> Booleans:
    """Return who is in the largest group of clients that are linked by pairs they share, (K,)."""
    n_clients, has = len(weights), weights > 0
    group = np.arange(n_clients, dtype=np.int32)
    while True:
        # Each pair takes the lowest number among the clients that have it, each client the lowest among its pairs.
        of_pair = np.where(has, group[:, None], np.int32(n_clients)).min(axis=0, initial=n_clients)
        joined = np.minimum(np.where(has, of_pair, np.int32(n_clients)).min(axis=1, initial=n_clients), group)
        if np.array_equal(joined, group):
            break
        group = joined
    sizes = np.bincount(group, minlength=n_clients)
    known = np.bincount(group, weights=weights.sum(axis=1), minlength=n_clients)  # decides between groups of one size
    largest: Booleans = group == np.lexsort((known, sizes))[-1] if n_clients else np.zeros(0, np.bool_)
    return largest


@one_thread()
def _fitted(values: Array, weights: Array) -> ClientEffects:
    """Return the weighted least-squares fit of ℓ ≈ pair + client, for ℓ and weights (K, P)."""
    of_pair, of_client = weights.sum(axis=0), weights.sum(axis=1)
    per_pair = np.divide(1.0, of_pair, out=np.zeros_like(of_pair), where=of_pair > 0)
    sum_by_pair, sum_by_client = (np.einsum(f"kp,kp->{kept}", weights, values) for kept in "pk")

    def without_pairs(effect: Array) -> Array:
        """Return the left side of the normal equations after every pair's effect is put in."""
        image: Array = of_client * effect - weights @ (per_pair * (effect @ weights))
        return image

    effect = _solved(without_pairs, sum_by_client - weights @ (per_pair * sum_by_pair), scale=of_client)
    pair_effect = per_pair * (sum_by_pair - effect @ weights)
    variance, excess, known = (np.zeros(len(values)) for _ in range(3))
    in_pair = _class_in_pair(len(of_pair))
    for rows in (slice(start, start + AT_ONCE) for start in range(0, len(values), AT_ONCE)):
        weight = weights[rows]
        others = 1 - weight * per_pair  # the part of a pair's effect that others tell: 0 if nobody else has the pair
        share = weight * others
        error = np.sqrt(weight) * others  # of each pair, times its share
        variance[rows] = (1 - 2 * SHARED) * np.square(error).sum(axis=1)
        variance[rows] += SHARED * np.square(error @ in_pair).sum(axis=1)
        variance[rows] /= np.square(share.sum(axis=1))
        residual = values[rows] - pair_effect - effect[rows, None]
        by_chance = np.divide(1.0, weight, out=np.zeros_like(weight), where=weight > 0) - PAIR_SPREAD**2
        precision = np.where(others > 0.1, weight, 0.0) ** 2
        excess[rows] = (precision * (residual**2 / others.clip(min=0.1) - by_chance)).sum(axis=1)
        known[rows] = precision.sum(axis=1)
    # Wrong labels strike some classes more than others, so the lower half of the clients is asked.
    lower = np.argsort(effect, kind="stable")[: (len(effect) + 1) // 2]
    total = max(float(known[lower].sum()), 1e-300)
    unlike = float(excess[lower].sum()) / total - math.sqrt(2 / total)  # what is more than its own error
    ratio, least = CLEAN_SPREAD
    return ClientEffects(effect, np.sqrt(variance), math.hypot(ratio * math.sqrt(max(unlike, 0.0)), least))


def _solved(apply: Callable[[Array], Array], right: Array, scale: Array) -> Array:
    """Return x with apply(x) = right and mean 0, by conjugate gradients; only constants go to 0."""
    x, rest = np.zeros_like(right), right - right.mean()  # a mean is rounding: nothing goes to a constant
    step = rest / scale
    first = left = float(rest @ step)
    for _ in range(len(right) + 10):
        if left <= 1e-24 * first:
            break
        image = apply(step)
        if (curvature := float(step @ image)) <= 0:  # what is left is rounding
            break
        length = left / curvature
        x += length * step
        rest -= length * image
        left, before = float(rest @ (rest / scale)), left
        step = rest / scale + left / before * step
    centred: Array = x - x.mean()
    return centred


def _class_in_pair(n_pairs: int) -> Array:
    """Return 1 where a class is in a pair, (P, C)."""
    n_classes = (1 + math.isqrt(1 + 8 * n_pairs)) // 2
    in_pair = np.zeros((n_pairs, n_classes))
    for member in np.triu_indices(n_classes, 1):
        in_pair[np.arange(n_pairs), member] = 1
    return in_pair


def weigh_groups(found: ClientEffects) -> tuple[PairEvidence, Array]:
    """Weigh two groups of clients against one; return the evidence, and the probability of the noisy group, (K,).

    One group: effects scatter about one level, each by its error and the spread of clean clients. Two groups: the
    lowest do so, the others scatter about a higher level, and as widely as they like. Every cut of the sorted clients
    is weighed, with the levels integrated out. The probabilities are those under the best cut.
    """
    order = np.argsort(found.effect, kind="stable")
    effect, variance, n_clients = found.effect[order], found.error[order] ** 2 + found.spread**2, len(order)
    below, low = _log_evidence(effect, variance)
    weighed = np.full((len(NOISY_SPREADS), n_clients - 1), -np.inf)
    for row, spread in enumerate(NOISY_SPREADS):
        above, high = (part[::-1] for part in _log_evidence(effect[::-1], variance[::-1] + spread**2))
        rise = high[1:] - low[:-1]
        # A share a of wrong labels is a rise of -log(1 - a): if every a is as likely, rises are exponential.
        weighed[row] = np.where(rise > LEAST_RISE, below[:-1] + above[1:] - rise, -np.inf)
    if not np.isfinite(weighed).any():
        return PairEvidence(0.0, 0.0), np.zeros(n_clients)
    log_odds = np.logaddexp.reduce(weighed, axis=None) - math.log(weighed.size) - below[-1]
    widest, cut = divmod(int(weighed.argmax()), n_clients - 1)
    n_clean, wider = cut + 1, variance + NOISY_SPREADS[widest] ** 2
    clean_level = low[cut]
    noisy_level = np.average(effect[n_clean:], weights=1 / wider[n_clean:])
    is_clean = math.log(n_clean) + _log_normal(effect - clean_level, variance)
    is_noisy = math.log(n_clients - n_clean) + _log_normal(effect - noisy_level, wider)
    posterior = np.empty(n_clients)  # up to the clean level nobody is noisy, however wide the noisy group is
    posterior[order] = np.where(effect > clean_level, _probability(is_noisy - is_clean), 0.0)
    separation = (noisy_level - clean_level) / math.sqrt(np.median(variance))
    return PairEvidence(float(_probability(log_odds)), float(separation)), posterior


def _log_evidence(effect: Array, variance: Array) -> tuple[Array, Array]:
    """Return log ∫ Π N(effect; level, variance) d(level) of the first 1, 2, … clients, and their mean levels, (K,)."""
    precision = np.cumsum(1 / variance)
    level = np.cumsum(effect / variance) / precision
    scatter = np.cumsum(effect**2 / variance) - level**2 * precision
    return -0.5 * (np.cumsum(np.log(2 * np.pi * variance)) - np.log(2 * np.pi / precision) + scatter), level


def _log_normal(distance: Array, variance: Array) -> Array:
    return -0.5 * (distance**2 / variance + np.log(variance))


def _probability(log_odds: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * log_odds))
