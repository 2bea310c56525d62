"""Stage I of the preset `plus`: how many labels of each client are wrong, by what the others' classes look like.

Every client sends sums of features by given label. The server gives each one the discriminant of all the others; the
client answers with one number, its noise rate. Nobody needs to be known as clean: symmetric noise draws the means of
all classes together and leaves their directions, so sums of noisy clients still tell classes apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Annotated

import numpy as np

from fedsir.data.shapes import Shape
from fedsir.stages.bayes import MOST_FOR_TEMPERATURE, TEMPERATURES, LabelPosterior, Temperature, weigh_labels
from fedsir.stages.discriminant import ClassMoments, Discriminant, discriminant, fewest_of_a_noisy_class
from fedsir.stages.leave_one_out import Others
from fedsir.stages.spectrum import Array, Labels
from fedsir.stages.split import ClientSplit, OffDiagonal, split_clients

FEWEST_JUDGED = 20  # samples of a client
LIMIT, CONVINCING = 0.05, 0.9  # a client is noisy if its rate is above the limit with that probability
RATES = np.linspace(0.0, 0.995, 200)
RATES_AT_ONCE = 8
UNKNOWN = Temperature(0.35, 1.0)  # before anybody was judged
ALL_FOR_TEMPERATURE, FEWEST_FOR_TEMPERATURE = 20_000, 200  # samples, of all clients and of each
PASSES = 3  # of the search, at most; from the second on, clients count by their rates for what others are judged by


@dataclass(frozen=True)
class Belief:
    """How strongly noise is believed to be symmetric, in samples' worth for each sample of a class, and at most.

    name : its key in BELIEFS
    strength : in each row of the transition, once the temperature is known
    profile_strength : the same while the temperature is looked for
    most : samples' worth that neither exceeds
    trust_power : clients count (1 - rate) to this power for what the others are judged by
    """

    name: str
    strength: float
    profile_strength: float
    most: tuple[float, float] = (300.0, 30.0)
    trust_power: int = 8


# One-sided noise that most clients share looks like classes that features cannot tell apart, but that leaves clean
# clients' labels unexplained: they are too good. A search that believes little in symmetric noise finds that out. It
# also takes what others know little of for noise, so it only says how far each client is trusted. Verdicts need more.
SEARCH, VERDICT = Belief("search", 1.0, 0.05), Belief("verdict", 2.0, 0.3)
# With few samples for their features, classes of the others are known too badly for a search: symmetric noise only.
CAREFUL = Belief("careful", math.inf, math.inf, (300.0, math.inf), trust_power=4)
BELIEFS = {belief.name: belief for belief in (SEARCH, VERDICT, CAREFUL)}
SAMPLES_PER_FEATURE, OF_EACH_CLIENT = 8, 0.9  # from which it is searched: of all clients together, and on average
Ask = Callable[[Mapping[str, float], Temperature, Belief], Mapping[str, "NoiseRate | None"]]


@dataclass(frozen=True)
class NoiseRate:
    """What a client says of its labels, judged by the others.

    rate : share of wrong labels among the samples that could be judged
    standard_error : of the rate
    probability_noisy : how likely the rate is above LIMIT
    n_judged : samples of classes that others have enough of
    profile : log-likelihood of its labels by temperature; see `common_temperature`
    """

    rate: float
    standard_error: float
    probability_noisy: float
    n_judged: int
    profile: Annotated[Array, Shape(len(TEMPERATURES))]

    @property
    def is_noisy(self) -> bool:
        """Whether the rate is above LIMIT without much doubt."""
        return self.probability_noisy > CONVINCING


def looks_clean(probability_noisy: float) -> bool:
    """Whether the rate is below LIMIT without much doubt."""
    return probability_noisy < 1 - CONVINCING


def first_trust(statistics: Mapping[str, OffDiagonal]) -> dict[str, float]:
    """Return how much each client counts in the first pass: all alike, or only those whom Stage I calls clean.

    Where nearly all labels of most clients are wrong, the others' sums of a class may say nothing, and clean clients be
    judged by them. Just there the paper's two numbers per client are convincing.
    """
    split = split_clients(statistics, "auto")
    believed = split.clean if split.has_two_groups else tuple(statistics)
    return {k: float(k in believed) for k in statistics}


def trust_by_rate(rates: Mapping[str, NoiseRate | None], power: int = SEARCH.trust_power) -> dict[str, float]:
    """Return how much each client counts in later passes: with a power of 8, 92 % at a rate of 1 %, 2 % at 40 %."""
    return {k: 1.0 if rate is None else (1 - rate.rate) ** power for k, rate in rates.items()}


def judge_each_other(
    ask: Ask, statistics: Mapping[str, OffDiagonal], samples_per_feature: float
) -> tuple[dict[str, NoiseRate | None], Temperature]:
    """Return every client's noise rate, None where too few samples can be judged, and the common temperature.

    Parameters
    ----------
    ask : (how much each client counts, what is believed) → noise rates of the clients that answered, each judged by the
        others
    statistics : client → the paper's two numbers
    samples_per_feature : samples of all clients over the number of features
    """
    is_searched = samples_per_feature >= max(SAMPLES_PER_FEATURE, OF_EACH_CLIENT * len(statistics))
    belief = SEARCH if is_searched else CAREFUL
    rates: dict[str, NoiseRate | None] = {}
    trust, temperature, noisy = first_trust(statistics), UNKNOWN, None
    for _ in range(PASSES):
        # Whom the trusted clients have too few samples to judge keeps what all of them said.
        rates = {k: rate or rates.get(k) for k, rate in ask(trust, temperature, belief).items()}
        temperature, trust = common_temperature(rates.values()), {**trust, **trust_by_rate(rates, belief.trust_power)}
        before, noisy = noisy, [k for k, rate in rates.items() if rate is not None and rate.is_noisy]
        if noisy == before:
            break
    if is_searched:
        rates = {k: rate or rates.get(k) for k, rate in ask(trust, temperature, VERDICT).items()}
    return rates, temperature


def discriminants_of_others(moments: Mapping[str, ClassMoments], trust: Mapping[str, float]) -> dict[str, Discriminant]:
    """Return for each client the discriminant of all the others, as far as they are trusted; empty with one client."""
    if len(moments) < 2:
        return {}
    trusted = {k: sums.weighted(trust[k]) for k, sums in moments.items()}
    total = reduce(add, trusted.values())
    fewest = fewest_of_a_noisy_class(next(iter(moments.values())).sums.shape[1])
    return {k: discriminant([total - own], fewest=fewest) for k, own in trusted.items()}


def judged(others: Others, statistics: Mapping[str, OffDiagonal]) -> tuple[dict[str, NoiseRate | None], Temperature]:
    """Return every client's noise rate and the common temperature, where all features are at hand."""
    clients = others.clients
    if len(clients) < 2:
        return dict.fromkeys(clients), UNKNOWN
    most = most_for_judging(len(clients))

    def ask(trust: Mapping[str, float], temperature: Temperature, belief: Belief) -> dict[str, NoiseRate | None]:
        return {k: noise_rate(scores, clients[k][1], temperature, belief, most) for k, scores in others.scores(trust)}

    n_samples = sum(len(labels) for _, labels in clients.values())
    return judge_each_other(ask, statistics, n_samples / others.n_features)


def most_for_judging(n_clients: int) -> int:
    """Return how many samples of each client say enough of the temperature: many clients need few of each."""
    return min(MOST_FOR_TEMPERATURE, max(ALL_FOR_TEMPERATURE // n_clients, FEWEST_FOR_TEMPERATURE))


def common_temperature(rates: Iterable[NoiseRate | None]) -> Temperature:
    """Return what all clients' labels together say of how far scores are to be trusted.

    The labels of a noisy client alone cannot tell a low trust and few wrong labels from a high one and many; those of
    the others can.
    """
    profiles = [rate.profile for rate in rates if rate is not None]
    if not profiles:
        return UNKNOWN
    return Temperature(float(TEMPERATURES[int(np.argmax(np.sum(profiles, axis=0) + UNKNOWN.log_prior))]))


def noise_rate(
    scores: Array,
    given: Labels,
    temperature: Temperature = UNKNOWN,
    belief: Belief = VERDICT,
    most_for_profile: int = MOST_FOR_TEMPERATURE,
) -> NoiseRate | None:
    """Return the noise rate from scores (n, C) and given labels (n,); None where too few samples can be judged."""
    found = weigh_by_others(scores, given, temperature, belief, most_for_profile)
    n_judged = int(found.is_judged.sum())
    if found.noise_rate is None or n_judged < FEWEST_JUDGED:
        return None
    belief_in_rates = _belief_in_rates(found, given)
    mean = float(belief_in_rates @ RATES)
    error = math.sqrt(float(belief_in_rates @ np.square(RATES - mean)))
    return NoiseRate(found.noise_rate, error, _above_limit(belief_in_rates), n_judged, found.profile)


def probability_noisy(found: LabelPosterior, given: Labels) -> float | None:
    """Return how likely the noise rate is above LIMIT, of given labels (n,); None where too few could be judged."""
    if found.noise_rate is None or int(found.is_judged.sum()) < FEWEST_JUDGED:
        return None
    return _above_limit(_belief_in_rates(found, given))


def _above_limit(belief_in_rates: Array) -> float:
    return float(belief_in_rates[RATES > LIMIT].sum())


def weigh_by_others(
    scores: Array,
    given: Labels,
    temperature: Temperature = UNKNOWN,
    belief: Belief = VERDICT,
    most_for_profile: int = MOST_FOR_TEMPERATURE,
) -> LabelPosterior:
    """Return what labels (n,) are worth by scores (n, C) of a discriminant that may have few samples of a class."""
    is_owned = np.isfinite(scores[0])
    per_class = max(float(is_owned[given].sum()), 1.0) / max(int(is_owned.sum()), 1)
    most, most_in_profile = belief.most
    return weigh_labels(
        scores,
        given,
        min(belief.strength * per_class, most),
        temperature,
        profile_strength=min(belief.profile_strength * per_class, most_in_profile),
        most_for_profile=most_for_profile,
    )


def _belief_in_rates(found: LabelPosterior, given: Labels) -> Array:
    """Return the posterior of the noise rate on RATES, from a uniform prior."""
    log_likelihood = rate_log_likelihood(found, given, RATES)
    belief = np.exp(log_likelihood - log_likelihood.max())
    normalised: Array = belief / belief.sum()
    return normalised


def rate_log_likelihood(found: LabelPosterior, given: Labels, rates: Array) -> Array:
    """Return the log-likelihood of a client's given labels (n,) by noise rate; where wrong labels go stays as fitted.

    p(given | x) = (1 - e) q(given) + e Σ_c q(c) R(given | c), q without the label, R the transition of wrong labels.
    """
    labels = given[found.is_judged]
    by_class = found.probabilities[found.is_judged] / found.transition.T[labels].clip(min=1e-12)
    by_class /= by_class.sum(axis=1, keepdims=True)
    wrong = found.transition - np.diag(found.transition.diagonal())
    wrong /= wrong.sum(axis=1, keepdims=True).clip(min=1e-12)
    is_right, is_wrong = by_class[np.arange(len(labels)), labels], (by_class * wrong.T[labels]).sum(axis=1)
    # A few rates at a time: all at once would be a matrix of samples × rates.
    blocks = np.array_split(rates[:, None], max(len(rates) // RATES_AT_ONCE, 1))
    return np.concatenate([np.log(((1 - e) * is_right + e * is_wrong).clip(min=1e-12)).sum(axis=1) for e in blocks])


def split_by_noise_rates(
    rates: Mapping[str, NoiseRate | None],
    statistics: Mapping[str, OffDiagonal],
    missing: Mapping[str, str] | None = None,
) -> ClientSplit:
    """Return who is noisy. Where everybody is, the least noisy counts as clean: somebody has to teach.

    A client of whose classes the others have too few samples has no rate. The paper's two numbers decide about it where
    they show two groups of clients; else it is not assessed. Where nobody has a rate, they decide about all.

    Parameters
    ----------
    statistics : client → the paper's two numbers
    missing : client → reason, for clients that never answered
    """
    known = {k: rate for k, rate in rates.items() if rate is not None}
    if not known:
        note = "too few samples to estimate noise rates: clients are compared by class similarities"
        return split_clients(statistics, "auto", missing, note=note)
    noisy = [k for k, rate in known.items() if rate.is_noisy]
    if noisy and len(noisy) == len(known):
        noisy.remove(min(noisy, key=lambda k: known[k].rate))
    unknown = [k for k, rate in rates.items() if rate is None]
    alike = split_clients(statistics, "auto") if unknown else None
    by_similarity = {}
    if alike is not None and alike.has_two_groups:
        by_similarity = {k: alike.posterior_noisy[k] for k in unknown if k in alike.posterior_noisy}
        noisy += [k for k in by_similarity if k in alike.noisy]
    too_few = f"fewer than {FEWEST_JUDGED} samples of classes that the other clients have enough of"
    return ClientSplit(
        clean=tuple(k for k in rates if k in (*known, *by_similarity) and k not in noisy),
        noisy=tuple(k for k in rates if k in noisy),
        statistics={k: (rate.rate, rate.standard_error) for k, rate in known.items()},
        posterior_noisy={k: rate.probability_noisy for k, rate in known.items()} | by_similarity,
        not_assessed={**(missing or {}), **{k: too_few for k in unknown if k not in by_similarity}},
        evidence=None,
        has_two_groups=bool(noisy),
        noise_rates={k: rate.rate for k, rate in known.items()},
    )
