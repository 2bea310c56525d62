"""Stage II of the preset `plus`: Bayes instead of agreement.

Clean clients send sums of features, from which the server makes a linear discriminant: what class an image looks like.
The given label says something too, and how much depends on how noisy the client is. Each noisy client finds that out
for itself, by expectation-maximisation over its own samples, and weighs the two:

    J(c) ∝ π(c) · exp(k · s_c(x)) · T(given | c)

s are the discriminant's scores, k how far they can be trusted, π the client's own class prior, T its label transition.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedsir.stages.discriminant import Booleans
from fedsir.stages.spectrum import Array, Labels, one_thread

# Chosen by the label noise left on the noisy clients' training images of one federation (docs/plus.md says which).
TRANSITION_STRENGTH = 30.0
TEMPERATURES = np.geomspace(0.05, 4.0, 19)

SHARED = 0.6  # of each look's log-likelihood, if two are added: they look at the same image (docs/plus.md)
SURE = 0.9  # probability from which a corrected label counts as decided
SMALLEST_RATE = 1e-3  # a client without a single wrong label must still be able to find the first
TEMPERATURE_STEPS, STEPS = 25, 60
SETTLED = 1e-5  # change of rate and prior in a step, below which no further step is taken
FEW_CLASSES = 32  # up to which a product with what is given is faster than sums by label
MOST_FOR_TEMPERATURE = 5000  # samples; more tell the temperature no better


@dataclass(frozen=True)
class Temperature:
    """What is believed of k, how far scores are to be trusted, before a label is seen.

    guess : the likeliest; a network knows its own training images too well, so it is below 1
    spread : standard deviation of its logarithm
    """

    guess: float = 0.25
    spread: float = 0.3

    @property
    def log_prior(self) -> Array:
        """Logarithm of the belief in each of TEMPERATURES, up to a constant."""
        return -np.square(np.log(TEMPERATURES / self.guess) / self.spread) / 2


@dataclass(frozen=True)
class LabelPosterior:
    """What is known of a client's labels once features and given labels are weighed.

    probabilities : (n, C), J; rows sum to 1
    noise_rate : share of the given labels that are wrong; None where no sample could be judged
    temperature : k, how far the scores were trusted
    profile : (len(TEMPERATURES),) log-likelihood of the given labels by temperature; clients' profiles add up
    transition : (C, C), T: true class → given label
    is_judged : (n,) bool, False where the given label is of a class that is not owned; it is kept
    """

    probabilities: Array
    noise_rate: float | None
    temperature: float
    profile: Array
    transition: Array
    is_judged: Booleans

    @property
    def labels(self) -> Labels:
        """The most probable class of each sample, (n,)."""
        labels: Labels = self.probabilities.argmax(axis=1)
        return labels


DEFAULT_BELIEF = Temperature()


def likeliest_scores(
    looks: Sequence[tuple[Array, Temperature]], given: Labels, most: int = MOST_FOR_TEMPERATURE
) -> Array:
    """Return the trusted scores k · s, (n, C), that make given labels (n,) likeliest: of one look at images or of all.

    Wrong labels are wrong whatever one looks at, so better features explain more of the right ones. Noise is symmetric
    here: a transition of its own would take what bad features confuse for noise.

    Parameters
    ----------
    looks : scores (n, C) of some features, and what is believed of their temperature
    most : samples among which temperatures are looked for
    """
    some = _evenly_spaced(len(given), most)
    trusted: list[Array] = []
    likelihoods: list[float] = []
    for scores, belief in looks:
        profile = label_log_likelihood(scores[some], given[some], TEMPERATURES) + belief.log_prior
        best = int(np.argmax(profile))
        trusted.append(TEMPERATURES[best] * scores)
        likelihoods.append(float(profile[best]))
    together: Array = SHARED * np.sum(trusted, axis=0)
    trusted.append(together)
    likelihoods.append(float(label_log_likelihood(together[some], given[some], np.ones(1))[0]))
    return trusted[int(np.argmax(likelihoods))]


def _evenly_spaced(n: int, most: int) -> Labels:
    """Return at most so many of n rows."""
    return np.linspace(0, n - 1, most).astype(np.int64) if n > most else np.arange(n)


def label_log_likelihood(scores: Array, given: Labels, temperatures: Array) -> Array:
    """Return the log-likelihood of given labels (n,) by temperature, with symmetric noise, from scores (n, C).

    Clients' likelihoods add up. Labels of classes that are not owned say nothing.
    """
    is_owned = np.isfinite(scores[0]) if len(scores) else np.zeros(scores.shape[1], bool)
    is_judged = is_owned[given]
    if not is_judged.any() or is_owned.sum() < 2:
        return np.zeros(len(temperatures))
    judged = _Evidence(scores[is_judged][:, is_owned], (is_owned.cumsum() - 1)[given[is_judged]])
    return np.array([judged.fit(k, np.inf, TEMPERATURE_STEPS).log_likelihood for k in temperatures.tolist()])


def weigh_labels(
    scores: Array,
    given: Labels,
    strength: float = TRANSITION_STRENGTH,
    belief: Temperature = DEFAULT_BELIEF,
    *,
    profile_strength: float = math.inf,
    most_for_profile: int = MOST_FOR_TEMPERATURE,
    temperature: float | None = None,
) -> LabelPosterior:
    """Return what a client's labels are once its scores (n, C) and given labels (n,) are weighed.

    The temperature k comes first, with one noise rate for all classes: a whole transition matrix could explain given
    labels by itself and let k run away. A prior keeps k where given labels say nothing (90 % noise among ten classes).
    The transition comes second. Each of its rows has `strength` samples' worth of belief that noise is symmetric, so
    that a client with few samples or symmetric noise is not overfitted; infinite strength allows nothing else. Where
    others hold k, the search for it may allow one-sided noise too: `profile_strength` is the belief of its rows.

    The temperature is looked for among at most `most_for_profile` samples. Where it is known, it is not fitted, and the
    profile is zero.
    """
    n, n_classes = scores.shape
    is_owned = np.isfinite(scores[0])  # the same in every row
    is_judged = is_owned[given]
    probabilities = np.eye(n_classes)[given]
    if not is_judged.any() or is_owned.sum() < 2:
        nobody = np.zeros(n, dtype=bool)
        nothing = np.zeros(len(TEMPERATURES))
        return LabelPosterior(probabilities, None, belief.guess, nothing, np.eye(n_classes), nobody)
    # Only differences of scores count, and only among classes that can be assigned.
    judged = _Evidence(scores[is_judged][:, is_owned], (is_owned.cumsum() - 1)[given[is_judged]])
    profile = np.zeros(len(TEMPERATURES))
    if temperature is None:
        profile = judged.some(most_for_profile).profile(profile_strength)
        temperature = float(TEMPERATURES[int(np.argmax(profile + belief.log_prior))])
    fitted = judged.fit(temperature, strength, STEPS)
    rows = np.zeros((int(is_judged.sum()), n_classes))
    rows[:, is_owned] = fitted.posterior
    probabilities[is_judged] = rows
    transition = np.eye(n_classes)
    transition[np.ix_(is_owned, is_owned)] = fitted.transition
    return LabelPosterior(probabilities, fitted.noise_rate, temperature, profile, transition, is_judged)


@dataclass(frozen=True)
class _Fit:
    """posterior : (n, C); transition : (C, C); log_likelihood : of the given labels, with what the priors say."""

    posterior: Array
    transition: Array
    noise_rate: float
    log_likelihood: float


class _Evidence:
    """Scores (n, C) of classes that can all be assigned, and given labels (n,) among them."""

    def __init__(self, scores: Array, given: Labels) -> None:
        # Columns were chosen, so columns may lie together; with many of them rows should.
        is_narrow = scores.shape[1] <= FEW_CLASSES
        self._scores = np.subtract(scores, scores.max(axis=1, keepdims=True), order="K" if is_narrow else "C")
        self._given, self._rows = given, np.arange(len(given))

    def some(self, most: int) -> _Evidence:
        """Return at most so many samples, evenly spaced."""
        chosen = _evenly_spaced(len(self._given), most)
        return _Evidence(self._scores[chosen], self._given[chosen])

    def profile(self, strength: float) -> Array:
        """Return the log-likelihood of the given labels by temperature, (len(TEMPERATURES),)."""
        return np.array([self.fit(k, strength, TEMPERATURE_STEPS).log_likelihood for k in TEMPERATURES.tolist()])

    @one_thread()
    def fit(self, temperature: float, strength: float, steps: int) -> _Fit:
        """Return posterior and transition by expectation-maximisation; strength = inf keeps the noise symmetric."""
        n, n_classes = self._scores.shape
        likelihood = np.exp(temperature * self._scores)  # (n, C), the largest is 1
        prior, rate = np.full(n_classes, 1 / n_classes), 0.5
        transition = symmetric(rate, n_classes)
        for _ in range(steps):
            posterior, _ = self._posterior(likelihood * prior, transition)
            before, rate = (prior, rate), self._rate(posterior)
            prior = (posterior.sum(axis=0) + 1) / (n + n_classes)
            believed = _believed(rate, n_classes)
            if np.isinf(strength):
                transition = believed
            else:
                moved = self._moved(posterior) + strength * believed
                transition = moved / moved.sum(axis=1, keepdims=True)
            if abs(rate - before[1]) + float(np.abs(prior - before[0]).max()) < SETTLED:
                break
        by_class = likelihood * prior
        posterior, evidence = self._posterior(by_class, transition)
        log_likelihood = float(np.log(evidence / by_class.sum(axis=1)).sum())
        # The pseudo-sample of each class in `prior` counts, or a class could vanish for nothing.
        log_likelihood += float(np.log(prior).sum())
        rate = self._rate(posterior)
        if not np.isinf(strength):  # the samples' worth of belief in each row counts, too
            believed = _believed(rate, n_classes)
            log_likelihood += strength * float((believed * np.log(transition / believed)).sum())
        return _Fit(posterior, transition, rate, log_likelihood)

    def _moved(self, posterior: Array) -> Array:
        """Return how many samples of each class are given each label, (C, C)."""
        n_classes = posterior.shape[1]
        if n_classes <= FEW_CLASSES:
            by_product: Array = posterior.T @ self._is_given
            return by_product
        summed: Array = np.bincount(self._cells, posterior.ravel(), minlength=n_classes**2)  # type: ignore[assignment]
        return summed.reshape(n_classes, n_classes).T

    @cached_property
    def _is_given(self) -> Array:
        """(n, C), 1 at the given label."""
        return np.eye(self._scores.shape[1])[self._given]

    @cached_property
    def _cells(self) -> Labels:
        """Where each entry of a posterior counts among given label × class, (n · C,)."""
        n_classes = self._scores.shape[1]
        cells: Labels = (self._given[:, None] * n_classes + np.arange(n_classes)).ravel()
        return cells

    def _posterior(self, by_class: Array, transition: Array) -> tuple[Array, Array]:
        """Return J (n, C) from what features say (n, C), and how likely each sample is, (n,)."""
        joint = by_class * transition.T[self._given]
        evidence = joint.sum(axis=1)
        return joint / evidence[:, None], evidence

    def _rate(self, posterior: Array) -> float:
        return 1 - float(posterior[self._rows, self._given].mean())


def _believed(rate: float, n_classes: int) -> Array:
    return symmetric(min(max(rate, SMALLEST_RATE), 1 - 1 / n_classes), n_classes)


def symmetric(rate: float, n_classes: int) -> Array:
    """Return the transition of symmetric noise, (C, C): right with 1 - rate, else any other class alike."""
    transition = np.full((n_classes, n_classes), rate / (n_classes - 1))
    np.fill_diagonal(transition, 1 - rate)
    return transition
