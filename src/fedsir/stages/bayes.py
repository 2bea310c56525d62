"""Stage II of the preset `plus`: Bayes instead of agreement.

Clean clients send sums of features, from which the server makes a linear discriminant: what class an image looks like.
The given label says something too, and how much depends on how noisy the client is. Each noisy client finds that out
for itself, by expectation-maximisation over its own samples, and weighs the two:

    J(c) ∝ π(c) · exp(k · s_c(x)) · T(given | c)

s are the discriminant's scores, k how far they can be trusted, π the client's own class prior, T its label transition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from fedsir.data.shapes import Shape
from fedsir.stages.spectrum import Array, Features, Labels, one_thread

Float32 = NDArray[np.float32]
Booleans = NDArray[np.bool_]

# Chosen by the label noise left on the noisy clients' training images of one federation (docs/plus.md says which).
SHRINKAGE = 0.2
TRANSITION_STRENGTH = 30.0
TEMPERATURES = np.geomspace(0.05, 4.0, 19)
FEWEST_OF_A_CLASS = 2  # samples; one alone has no spread
# Where some labels may be wrong a class needs more: the more features, the less a mean of few says.
FEWEST_OF_A_NOISY_CLASS, SHARE_OF_FEATURES = 20, 0.1

SURE = 0.9  # probability from which a corrected label counts as decided
SMALLEST_VARIANCE = 1e-6
SMALLEST_RATE = 1e-3  # a client without a single wrong label must still be able to find the first
TEMPERATURE_STEPS, STEPS = 25, 60
SETTLED = 1e-5  # change of rate and prior in a step, below which no further step is taken
MOST_FOR_TEMPERATURE = 5000  # samples; more tell the temperature no better


@dataclass(frozen=True)
class ClassMoments:
    """What a clean client sends: sums over its samples, which could be summed securely.

    counts : (C,) int64, samples of each class
    sums : (C, d), sum of the features of each class
    second_moment : (d, d), sum of x xᵀ over all samples
    """

    counts: Annotated[Labels, Shape("classes", kind="int")]
    sums: Annotated[Float32, Shape("classes", "features")]
    second_moment: Annotated[Float32, Shape("features", "features")]

    @property
    def fault(self) -> str | None:
        """What is wrong with the values of received sums of the right types and shapes; None if nothing is."""
        squares, largest = self.second_moment.diagonal(), float(np.abs(self.second_moment).max())
        if bool((self.counts < 0).any()):
            return "moments.counts: a count is negative"
        if bool((squares < 0).any()) or not np.allclose(self.second_moment, self.second_moment.T, atol=1e-3 * largest):
            return "moments.second_moment: it is not a sum of squares"
        return None

    def __add__(self, other: ClassMoments) -> ClassMoments:
        return ClassMoments(
            self.counts + other.counts, self.sums + other.sums, self.second_moment + other.second_moment
        )

    def __sub__(self, other: ClassMoments) -> ClassMoments:
        return self + other.scaled(-1)

    def scaled(self, weight: float) -> ClassMoments:
        """Return the sums with every sample counting `weight`."""
        return ClassMoments(self.counts * weight, self.sums * weight, self.second_moment * weight)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Discriminant:
    """What the clean clients' classes look like: scores s = W x + b, log-likelihoods up to what classes share.

    weights : (C, d), zeros for a class that is not owned
    biases : (C,)
    is_owned : (C,) bool, False for a class that clients have too few samples of
    """

    weights: Float32
    biases: Float32
    is_owned: Booleans


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


@one_thread()
def class_moments(features: Features, labels: Labels, n_classes: int) -> ClassMoments:
    """Return the sums over samples with features (n, d) and labels (n,), in float64."""
    exact: Array = features.astype(np.float64)
    is_of_class = labels[None, :] == np.arange(n_classes)[:, None]
    return ClassMoments(
        np.bincount(labels, minlength=n_classes),
        is_of_class.astype(np.float64) @ exact,
        exact.T @ exact,  # type: ignore[arg-type]
    )


def on_the_wire(moments: ClassMoments) -> ClassMoments:
    """Return the sums as they travel, in float32."""
    return ClassMoments(moments.counts, moments.sums.astype(np.float32), moments.second_moment.astype(np.float32))


@one_thread()
def discriminant(
    moments: Iterable[ClassMoments], shrinkage: float = SHRINKAGE, fewest: int = FEWEST_OF_A_CLASS
) -> Discriminant:
    """Return the linear discriminant of the classes: one mean each, one covariance for all of them.

    A class counts as owned from `fewest` samples on.

    A share `shrinkage` of the covariance is replaced by a multiple of the identity with the same trace, so that it can
    be inverted with fewer samples than features. A mean of few samples lies farther out than the true one; its bias
    takes that back on average.
    """
    total = reduce(ClassMoments.__add__, moments)
    counts = total.counts.astype(np.float64)
    is_owned = counts >= fewest - 1e-9  # weighted counts are rounded
    means, covariance = _means_and_covariance(total)
    d = len(covariance)
    # Features that do not vary within classes still have rounding: a share of their size keeps the inverse finite.
    size = float(np.trace(total.second_moment)) / max(counts.sum(), 1)
    scale = max(float(np.trace(covariance)), SMALLEST_VARIANCE * size, SMALLEST_VARIANCE) / d
    shrunk = (1 - shrinkage) * covariance + shrinkage * scale * np.eye(d)
    solved = np.linalg.solve(shrunk, np.concatenate([means, covariance]).T)  # (d, C + d)
    weights = np.where(is_owned[:, None], solved[:, : len(means)].T, 0)
    # E ‖m̂ - m‖² in the metric of the inverse covariance is its effective dimension over the samples behind the mean.
    too_far = np.trace(solved[:, len(means) :]) / counts.clip(min=1)
    biases = np.where(is_owned, (too_far - (weights * means).sum(axis=1)) / 2, 0)
    return Discriminant(weights.astype(np.float32), biases.astype(np.float32), is_owned)


def _means_and_covariance(total: ClassMoments) -> tuple[Array, Array]:
    """Return the mean of each class, (C, d), and the covariance that all share, (d, d)."""
    counts, sums = total.counts.astype(np.float64), total.sums.astype(np.float64)
    means: Array = sums / counts.clip(min=1)[:, None]
    within = total.second_moment.astype(np.float64) - means.T @ sums
    return means, within / max(counts.sum() - (counts > 0.5).sum(), 1)


@one_thread()
def with_missing_classes(clean: ClassMoments, counts: Labels, sums: Features) -> ClassMoments:
    """Return the clean clients' sums, with what noisy clients have of classes that no clean client owns.

    Wrong labels draw the mean of a class towards the others, and leave its direction. Its samples lie about that mean
    more widely than those of a class do, so it is given the spread of the clean clients' classes.

    Parameters
    ----------
    counts, sums : (C,), (C, d) of the noisy clients' samples by label
    """
    is_taken = is_missing(clean) & (counts >= fewest_of_a_noisy_class(sums.shape[1]))
    if not is_taken.any():
        return clean
    _, covariance = _means_and_covariance(clean)
    counts, sums = np.where(is_taken, counts, 0), np.where(is_taken[:, None], sums, 0).astype(np.float64)
    scatter = (sums / counts.clip(min=1)[:, None]).T @ sums + float(counts.sum() - is_taken.sum()) * covariance
    return clean + ClassMoments(counts, sums, scatter)


def is_missing(clean: ClassMoments) -> Booleans:
    """Return which classes, (C,), the clean clients do not own."""
    missing: Booleans = clean.counts < FEWEST_OF_A_CLASS
    return missing


def fewest_of_a_noisy_class(n_features: int) -> int:
    """Return how many samples of a class it takes to judge by them where some of their labels may be wrong."""
    return max(FEWEST_OF_A_NOISY_CLASS, int(SHARE_OF_FEATURES * n_features))


@one_thread()
def discriminant_scores(features: Features, fitted: Discriminant) -> Array:
    """Return s, (n, C); -inf for classes that are not owned."""
    scores = features.astype(np.float32, copy=False) @ fitted.weights.T + fitted.biases
    return np.where(fitted.is_owned, scores, -np.inf).astype(np.float64)


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
        self._scores = scores - scores.max(axis=1, keepdims=True)
        self._given = given

    def some(self, most: int) -> _Evidence:
        """Return at most so many samples, evenly spaced."""
        n = len(self._given)
        chosen = np.linspace(0, n - 1, most).astype(np.int64) if n > most else np.arange(n)
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
        is_given = None if np.isinf(strength) else np.eye(n_classes)[self._given]
        for _ in range(steps):
            posterior = self._posterior(likelihood, prior, transition)[0]
            before, rate = (prior, rate), self._rate(posterior)
            prior = (posterior.sum(axis=0) + 1) / (n + n_classes)
            believed = _believed(rate, n_classes)
            if is_given is None:
                transition = believed
            else:
                moved = posterior.T @ is_given + strength * believed
                transition = moved / moved.sum(axis=1, keepdims=True)
            if abs(rate - before[1]) + float(np.abs(prior - before[0]).max()) < SETTLED:
                break
        posterior, log_likelihood = self._posterior(likelihood, prior, transition)
        # The pseudo-sample of each class in `prior` counts, or a class could vanish for nothing.
        log_likelihood += float(np.log(prior).sum())
        rate = self._rate(posterior)
        if not np.isinf(strength):  # the samples' worth of belief in each row counts, too
            believed = _believed(rate, n_classes)
            log_likelihood += strength * float((believed * np.log(transition / believed)).sum())
        return _Fit(posterior, transition, rate, log_likelihood)

    def _posterior(self, likelihood: Array, prior: Array, transition: Array) -> tuple[Array, float]:
        by_class = likelihood * prior
        joint = by_class * transition.T[self._given]
        evidence = joint.sum(axis=1)
        return joint / evidence[:, None], float(np.log(evidence / by_class.sum(axis=1)).sum())

    def _rate(self, posterior: Array) -> float:
        return 1 - float(posterior[np.arange(len(posterior)), self._given].mean())


def _believed(rate: float, n_classes: int) -> Array:
    return symmetric(min(max(rate, SMALLEST_RATE), 1 - 1 / n_classes), n_classes)


def symmetric(rate: float, n_classes: int) -> Array:
    """Return the transition of symmetric noise, (C, C): right with 1 - rate, else any other class alike."""
    transition = np.full((n_classes, n_classes), rate / (n_classes - 1))
    np.fill_diagonal(transition, 1 - rate)
    return transition
