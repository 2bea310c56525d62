"""FedSIR's Stages I and II on features that you have already: any embedding, no training, no torch.

`identify` says which clients' labels look wrong, and how many of them; `relabel` which labels, and what they should be.
Each client is looked at on its own, and only what FedSIR's clients send is put together: sums of features; or how alike
their classes are, then class directions and residual subspaces.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from fedsir.data.arrays import as_array, as_column
from fedsir.data.naming import named_entries, natural_key
from fedsir.errors import DataError
from fedsir.frames import to_frame
from fedsir.stages.bayes import (
    SURE,
    ClassMoments,
    Temperature,
    class_moments,
    discriminant,
    discriminant_scores,
    weigh_labels,
)
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats, pair_similarities
from fedsir.stages.noise_rates import NoiseRate, judged, split_by_noise_rates
from fedsir.stages.pairwise import split_by_pairs
from fedsir.stages.relabel import aggregate_references, direction_scores, extract_spectra
from fedsir.stages.relabel import relabel as relabel_features
from fedsir.stages.spectrum import ClassFeatures, Features, Labels, class_features
from fedsir.stages.split import ClientSplit, Evidence, PairEvidence, split_clients

LARGEST = 1e15  # features beyond it, or below its inverse, are scaled
Split = Literal["rates", "pairwise", "auto", "always"]
Rule = Literal["bayes", "direction", "residual", "agreement"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Identification:
    """Which clients' labels look wrong.

    Attributes
    ----------
    clean, noisy : clients, as they were named, in natural order
    not_assessed : client → why nothing can be said about it
    statistics : client → mean and energy of the similarities of its classes, the two numbers of Stage I
    effects : client → how much more alike its pairs of classes are than clean clients', and the standard error; empty
        unless ``split="pairwise"``
    probability_noisy : client → probability that it is noisy; of the noisy group, where groups were looked for
    noise_rate : client → estimated share of wrong labels, and its standard error; empty unless ``split="rates"``
    n_samples, n_classes : client → how many samples it has, and of how many classes
    evidence : what speaks for two groups of clients; None where fewer than two differ, or rates decided
    two_groups : "found", "not found", or "asked for" with ``split="always"``
    note : what you would not expect of the verdict; else empty
    temperature : how far features can be trusted, as `relabel` needs it; None unless ``split="rates"``
    """

    clean: tuple[Any, ...]
    noisy: tuple[Any, ...]
    not_assessed: dict[Any, str]
    statistics: dict[Any, tuple[float, float]]
    probability_noisy: dict[Any, float]
    noise_rate: dict[Any, tuple[float, float]]
    n_samples: dict[Any, int]
    n_classes: dict[Any, int]
    evidence: Evidence | PairEvidence | None
    two_groups: Literal["asked for", "found", "not found"]
    effects: dict[Any, tuple[float, float]]
    note: str = ""
    temperature: float | None = None

    def verdict(self, client: Hashable) -> Literal["clean", "noisy", "not assessed"]:
        """Return what a client was called."""
        if client in self.not_assessed:
            return "not assessed"
        return "noisy" if client in self.noisy else "clean"

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per client; needs pandas."""
        columns = [
            "client",
            "verdict",
            "reason",
            "samples",
            "classes",
            "noise_rate",
            "standard_error",
            "mean",
            "energy",
        ]
        columns += ["effect", "effect_error", "probability_noisy"]
        unknown = (np.nan, np.nan)
        rates = {client: self.noise_rate.get(client, unknown) for client in self.n_samples}
        effects = {client: self.effects.get(client, unknown) for client in self.n_samples}
        rows = [
            {
                "client": client,
                "verdict": self.verdict(client),
                "reason": self.not_assessed.get(client, ""),
                "samples": n,
                "classes": self.n_classes[client],
                "noise_rate": rates[client][0],
                "standard_error": rates[client][1],
                "mean": self.statistics[client][0],
                "energy": self.statistics[client][1],
                "effect": effects[client][0],
                "effect_error": effects[client][1],
                "probability_noisy": self.probability_noisy.get(client, np.nan),
            }
            for client, n in self.n_samples.items()
        ]
        return to_frame(rows, columns)

    def __str__(self) -> str:
        rates = {k: f" ({self.noise_rate[k][0]:.0%} wrong)" if k in self.noise_rate else "" for k in self.noisy}
        named = f": {', '.join(f'{k}{rates[k]}' for k in self.noisy)}" if self.noisy else ""
        forced = " (two groups were asked for, not found)" if self.two_groups == "asked for" else ""
        unsure = f"; {len(self.not_assessed)} not assessed" if self.not_assessed else ""
        noted = f"; {self.note}" if self.note else ""
        return f"{len(self.noisy)} of {len(self.n_samples)} clients look noisy{named}{forced}{unsure}{noted}"


@dataclass(frozen=True, eq=False)
class Relabelled:
    """Corrected labels, in the order of the samples.

    Attributes
    ----------
    labels : (n,) corrected labels on noisy clients, given labels elsewhere, of the kind that was given
    score : (n,) in [0, 1], low is bad. With "bayes" the probability that the given label is right, with other rules how
        well it fits. 0.5 is a tie, or a class that no clean client has
    is_undecided : (n,) bool, where no class is probable enough; with other rules, where the two scores name different
        classes, or none
    is_changed : (n,) bool, where the corrected label is not the given one
    rule : which rule corrected the labels
    noise_rate : noisy client → estimated share of wrong labels; with "bayes" alone
    clients, given : (n,) as they were given
    """

    labels: NDArray[Any]
    score: NDArray[np.float64]
    is_undecided: NDArray[np.bool_]
    is_changed: NDArray[np.bool_]
    rule: str
    noise_rate: dict[Any, float]
    clients: NDArray[Any]
    given: NDArray[Any]

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per sample, in their order; needs pandas."""
        columns = {
            "client": self.clients,
            "given": self.given,
            "corrected": self.labels,
            "score": self.score,
            "is_changed": self.is_changed,
            "is_undecided": self.is_undecided,
        }
        return to_frame(columns, list(columns))

    def __str__(self) -> str:
        return f"{int(self.is_changed.sum()):,} of {len(self.labels):,} labels changed by the {self.rule} rule"


def identify(
    features: Any,
    labels: Any,
    clients: Any,
    *,
    split: Split = "rates",
    min_class_samples: int = 5,
) -> Identification:
    """Return which clients' labels look wrong, from features of any embedding (Stage I).

    By default each client's noise rate is estimated, by what the classes of all the others look like. The paper's own
    statistics compare clients instead: wrong labels mix classes, so those of a noisy client look more alike.

    Parameters
    ----------
    features : (n, d) numbers: a NumPy array, torch tensor, pandas DataFrame or list
    labels : (n,) given label of each sample: whole numbers, or names of any hashable kind
    clients : (n,) whose sample it is: numbers or names of any hashable kind
    split : "rates" estimates noise rates, and is "auto" where there are too few samples for that. "pairwise" compares
        clients pair by pair of classes, "auto" by the mean similarity of each; both call clients noisy only where the
        evidence speaks for two groups. "always" makes two groups, as the paper does
    min_class_samples : classes with fewer samples on a client do not count there
    """
    if split not in get_args(Split):
        raise DataError(f"split must be {', '.join(map(repr, get_args(Split)[:-1]))} or 'always', not {split!r}")
    federation = _Federation(features, labels, clients)
    statistics, pairs, n_samples, n_classes = {}, {}, {}, {}
    for key, collected in federation.class_features():
        directions = class_directions(collected, min_class_samples)
        statistics[key] = off_diagonal_stats(class_similarity(directions))
        if split == "pairwise":
            pairs[key] = pair_similarities(collected, directions)
        n_samples[key], n_classes[key] = int(collected.counts.sum()), int((collected.counts > 0).sum())
    rates: dict[str, NoiseRate | None] = {}
    temperature = None
    if split == "rates":
        rates, belief = judged(federation.samples(), len(federation.classes), statistics)
        found, temperature = split_by_noise_rates(rates), belief.guess
    if split == "pairwise":
        found = split_by_pairs(statistics, pairs)
    elif split != "rates" or not any(rates.values()):  # too few samples for rates: compare class similarities
        found = split_clients(statistics, "auto" if split == "rates" else split)
    named = federation.named
    return Identification(
        clean=tuple(federation.clients[int(key)] for key in found.clean),
        noisy=tuple(federation.clients[int(key)] for key in found.noisy),
        not_assessed=named(found.not_assessed),
        statistics=named({key: (stats.mean, stats.energy) for key, stats in statistics.items()}),
        probability_noisy=named(found.posterior_noisy if rates or found.has_two_groups else _nobody(found)),
        noise_rate=named({key: (rate.rate, rate.standard_error) for key, rate in rates.items() if rate is not None}),
        n_samples=named(n_samples),
        n_classes=named(n_classes),
        evidence=found.evidence,
        two_groups=found.two_groups,
        effects=named(found.effects),
        note=found.note,
        temperature=temperature,
    )


def relabel(
    features: Any,
    labels: Any,
    clients: Any,
    found: Identification | Iterable[Hashable] | None = None,
    *,
    rule: Rule = "bayes",
    residual_rank: int = 12,
) -> Relabelled:
    """Return corrected labels for the noisy clients' samples, by what the clean clients' classes look like (Stage II).

    Parameters
    ----------
    features, labels, clients : as for `identify`
    found : what `identify` returned, or the noisy clients' names; by default `identify` is asked
    rule : "bayes" weighs what a sample looks like against what its label says, by how noisy the client is. The paper's
        rules look at features alone: "direction" takes the class whose mean direction is nearest, "residual" the class
        whose residual subspace explains least (it needs more samples of each class than there are features),
        "agreement" the class on which both agree, else the given label
    residual_rank : vectors of a residual subspace (L in the paper)
    """
    if rule not in ("bayes", "direction", "residual", "agreement"):
        raise DataError(f"rule must be 'bayes', 'direction', 'residual' or 'agreement', not {rule!r}")
    federation = _Federation(features, labels, clients)
    found = identify(features, labels, clients) if found is None else found
    noisy, clean = federation.groups(found)
    given = federation.labels
    corrected, score, is_undecided = given.copy(), np.full(len(given), 0.5), np.zeros(len(given), bool)
    rates: dict[str, float] = {}
    if rule == "bayes":
        known = found.temperature if isinstance(found, Identification) else None
        _weigh(federation, noisy, clean, known, corrected, score, is_undecided, rates)
    else:
        _compare(federation, noisy, clean, rule, residual_rank, corrected, score, is_undecided)
    is_changed = corrected != given
    as_given = as_column("labels", labels)
    names = np.empty(len(federation.classes), as_given.dtype)
    names[:] = federation.classes
    return Relabelled(
        labels=np.where(is_changed, names[corrected], as_given),
        score=score,
        is_undecided=is_undecided,
        is_changed=is_changed,
        rule=rule,
        noise_rate=federation.named(rates),
        clients=as_column("clients", clients),
        given=as_given,
    )


def _weigh(
    federation: _Federation,
    noisy: set[int],
    clean: list[int],
    temperature: float | None,
    corrected: Labels,
    score: NDArray[np.float64],
    is_undecided: NDArray[np.bool_],
    rates: dict[str, float],
) -> None:
    """Fill in what Bayes says of every sample; clean clients get scores only, by what other clean ones look like."""
    belief = Temperature() if temperature is None else Temperature(temperature)
    samples, n_classes = federation.samples(), len(federation.classes)
    total = reduce(ClassMoments.__add__, (class_moments(*samples[str(k)], n_classes) for k in clean))
    of_all = discriminant([total])
    for key, (features, given) in samples.items():
        k = int(key)
        fitted = of_all
        if k in clean and len(clean) > 1:
            fitted = discriminant([total - class_moments(features, given, n_classes)])
        posterior = weigh_labels(discriminant_scores(features, fitted), given, belief=belief)
        rows = federation.rows(k)
        own = posterior.probabilities[np.arange(len(given)), given]
        score[rows] = np.where(posterior.is_judged, own, 0.5)
        if k in noisy:
            corrected[rows] = posterior.labels
            is_undecided[rows] = posterior.probabilities.max(axis=1) < SURE
            if posterior.noise_rate is not None:
                rates[key] = posterior.noise_rate


def _compare(
    federation: _Federation,
    noisy: set[int],
    clean: list[int],
    rule: str,
    residual_rank: int,
    corrected: Labels,
    score: NDArray[np.float64],
    is_undecided: NDArray[np.bool_],
) -> None:
    """Fill in what the paper's scores say of every sample."""
    spectra = {
        key: extract_spectra(collected, residual_rank, "after_block")
        for key, collected in federation.class_features(only=clean)
    }
    references = aggregate_references(spectra, weight="count_gap_share", min_samples=5, min_strength=0.03)
    given = federation.labels
    for k in range(len(federation.clients)):
        rows = federation.rows(k)
        score[rows] = _margin(direction_scores(federation.features[rows], references), given[rows])
        if k in noisy:
            fixed = relabel_features(federation.features[rows], given[rows], references, rule)
            corrected[rows], is_undecided[rows] = fixed.labels, fixed.is_undecided


class _Federation:
    """Samples by client, with labels and clients as numbers.

    features : (n, d); labels : (n,) positions in `classes`
    """

    def __init__(self, features: Any, labels: Any, clients: Any) -> None:
        self.features = _checked_features(features)
        n = len(self.features)
        self.classes, self.labels = _coded("labels", labels, n)
        self.clients, owners = _coded("clients", clients, n)
        if len(self.classes) < 2:
            raise DataError(f"labels: all are {self.classes[0]!r}; similarities of classes need two of them")
        if len(self.clients) < 2:
            raise DataError(f"clients: all samples are of {self.clients[0]!r}; there is nobody to compare it with")
        self._order = np.argsort(owners, kind="stable")
        self._ends = np.cumsum(np.bincount(owners, minlength=len(self.clients)))

    def rows(self, k: int) -> NDArray[np.intp]:
        """Return the rows of client number k."""
        return self._order[(self._ends[k - 1] if k else 0) : self._ends[k]]

    def class_features(self, only: Iterable[int] | None = None) -> Iterable[tuple[str, ClassFeatures]]:
        """Yield each client's number, as text, and what is known of its classes."""
        for k in range(len(self.clients)) if only is None else only:
            rows = self.rows(k)
            yield str(k), class_features(self.features[rows], self.labels[rows], len(self.classes))

    def samples(self) -> dict[str, tuple[Features, Labels]]:
        """Return each client's number, as text, with its features (n, d) and labels (n,)."""
        return {str(k): (self.features[self.rows(k)], self.labels[self.rows(k)]) for k in range(len(self.clients))}

    def named(self, by_number: dict[str, T]) -> dict[Any, T]:
        """Return values by client's number as values by client, in natural order."""
        return {self.clients[k]: by_number[str(k)] for k in range(len(self.clients)) if str(k) in by_number}

    def groups(self, found: Identification | Iterable[Hashable]) -> tuple[set[int], list[int]]:
        """Return the numbers of the noisy and of the clean clients."""
        number = {client: k for k, client in enumerate(self.clients)}
        if isinstance(found, Identification):
            noisy, clean = set(found.noisy), set(found.clean)
            if unseen := [client for client in self.clients if client not in found.n_samples]:
                raise DataError(f"found says nothing of client {unseen[0]!r}: identify these samples first")
        elif isinstance(found, Iterable) and not isinstance(found, str):
            noisy = set(found)
            clean = set(number) - noisy
        else:
            raise DataError(f"found must be what identify returned, or a list of noisy clients, not {found!r}")
        if unknown := (noisy | clean) - set(number):
            raise DataError(f"found: there is no client {unknown.pop()!r} among these samples")
        if not clean:
            raise DataError("found: no client is clean, so there is nobody to learn the classes from")
        return {number[client] for client in noisy}, sorted(number[client] for client in clean)


def _nobody(found: ClientSplit) -> dict[str, float]:
    """Return probability 0 for everybody who was assessed: one group has no noisy half."""
    return dict.fromkeys(found.posterior_noisy, 0.0)


def _margin(scores: NDArray[np.float32], given: Labels) -> NDArray[np.float64]:
    """Return ((own score - best other score) + 1) / 2, (n,), from scores (n, C) in [0, 1]; -inf is no score."""
    rows = np.arange(len(given))
    own = scores[rows, given].astype(np.float64)
    others = scores.copy()
    others[rows, given] = -np.inf
    best = others.max(axis=1).astype(np.float64)
    is_comparable = np.isfinite(own) & np.isfinite(best)
    difference = np.subtract(own, best, out=np.zeros(len(given)), where=is_comparable)
    margin: NDArray[np.float64] = ((difference + 1) / 2).clip(0, 1)
    return margin


def _checked_features(features: Any) -> Features:
    array = as_array("features", features)
    if array.ndim != 2:
        raise DataError(f"features have shape {array.shape}; expected (samples, features)")
    if array.dtype.kind not in "fiub":
        raise DataError(f"features must be numbers, not {array.dtype}")
    for axis, what in enumerate(("rows", "columns")):
        if array.shape[axis] == 0:
            raise DataError(f"features have no {what}: their shape is {array.shape}")
    exact: Features = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    is_finite = np.isfinite(exact).all(axis=1)
    if not is_finite.all():
        row = int(np.flatnonzero(~is_finite)[0])
        raise DataError(f"features: row {row} holds NaN or an infinite value ({int((~is_finite).sum())} such rows)")
    largest = np.abs(exact).max()
    if largest > LARGEST or 0 < largest < 1 / LARGEST:  # only directions matter, and squares must stay numbers
        exact = exact.astype(np.float64) / largest
    return exact


def _coded(what: str, values: Any, n: int) -> tuple[tuple[Any, ...], Labels]:
    """Return the distinct values in natural order, and the position of each entry among them, (n,)."""
    entries, names = named_entries(what, values, n, "rows of features")
    distinct = tuple(sorted(names, key=lambda entry: natural_key(names[entry])))
    position = {entry: i for i, entry in enumerate(distinct)}
    return distinct, np.array([position[entry] for entry in entries], np.int64)
