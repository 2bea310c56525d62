"""FedSIR's Stages I and II on features that you have already: any embedding, no training, no torch.

`identify` says which clients' labels look wrong, `relabel` which labels, and what they should be. Each client is looked
at on its own, and only what FedSIR's clients send is compared: two numbers each, then class directions and residual
subspaces.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsir.data.arrays import as_array, as_column
from fedsir.data.naming import named_entries, natural_key
from fedsir.errors import DataError
from fedsir.frames import to_frame
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.relabel import aggregate_references, direction_scores, extract_spectra
from fedsir.stages.relabel import relabel as relabel_features
from fedsir.stages.spectrum import ClassFeatures, Features, Labels, class_features
from fedsir.stages.split import ClientSplit, Evidence, split_clients

LARGEST = 1e15  # features beyond it, or below its inverse, are scaled
Rule = Literal["auto", "direction", "residual", "agreement"]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Identification:
    """Which clients' labels look wrong.

    Attributes
    ----------
    clean, noisy : clients, as they were named, in natural order
    not_assessed : client → why nothing can be said about it
    statistics : client → mean and energy of the similarities of its classes, the two numbers of Stage I
    probability_noisy : client → probability of the noisy group, if there are two
    n_samples, n_classes : client → how many samples it has, and of how many classes
    evidence : what speaks for two groups of clients; None where fewer than two differ
    two_groups : "found", "not found", or "asked for" with ``split="always"``
    """

    clean: tuple[Any, ...]
    noisy: tuple[Any, ...]
    not_assessed: dict[Any, str]
    statistics: dict[Any, tuple[float, float]]
    probability_noisy: dict[Any, float]
    n_samples: dict[Any, int]
    n_classes: dict[Any, int]
    evidence: Evidence | None
    two_groups: Literal["asked for", "found", "not found"]

    def verdict(self, client: Hashable) -> Literal["clean", "noisy", "not assessed"]:
        """Return what a client was called."""
        if client in self.not_assessed:
            return "not assessed"
        return "noisy" if client in self.noisy else "clean"

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per client; needs pandas."""
        columns = ["client", "verdict", "reason", "samples", "classes", "mean", "energy", "probability_noisy"]
        rows = [
            {
                "client": client,
                "verdict": self.verdict(client),
                "reason": self.not_assessed.get(client, ""),
                "samples": n,
                "classes": self.n_classes[client],
                "mean": self.statistics[client][0],
                "energy": self.statistics[client][1],
                "probability_noisy": self.probability_noisy.get(client, np.nan),
            }
            for client, n in self.n_samples.items()
        ]
        return to_frame(rows, columns)

    def __str__(self) -> str:
        named = f": {', '.join(map(str, self.noisy))}" if self.noisy else ""
        forced = " (two groups were asked for, not found)" if self.two_groups == "asked for" else ""
        unsure = f"; {len(self.not_assessed)} not assessed" if self.not_assessed else ""
        return f"{len(self.noisy)} of {len(self.n_samples)} clients look noisy{named}{forced}{unsure}"


@dataclass(frozen=True, eq=False)
class Relabelled:
    """Corrected labels, in the order of the samples.

    Attributes
    ----------
    labels : (n,) corrected labels on noisy clients, given labels elsewhere, of the kind that was given
    score : (n,) in [0, 1], how well the given label fits; low is bad, 0.5 is a tie or a class that no clean client has
    is_undecided : (n,) bool, where the two rules name different classes, or none
    is_changed : (n,) bool, where the corrected label is not the given one
    rule : which rule corrected the labels
    clients, given : (n,) as they were given
    """

    labels: NDArray[Any]
    score: NDArray[np.float64]
    is_undecided: NDArray[np.bool_]
    is_changed: NDArray[np.bool_]
    rule: str
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
    split: Literal["auto", "always"] = "auto",
    min_class_samples: int = 5,
) -> Identification:
    """Return which clients' labels look wrong, from features of any embedding (Stage I).

    Wrong labels mix classes, so the classes of a noisy client look more alike than those of a clean one.

    Parameters
    ----------
    features : (n, d) numbers: a NumPy array, torch tensor, pandas DataFrame or list
    labels : (n,) given label of each sample: whole numbers, or names of any hashable kind
    clients : (n,) whose sample it is: numbers or names of any hashable kind
    split : "auto" calls clients noisy only where the evidence speaks for two groups; "always" makes two groups
    min_class_samples : classes with fewer samples on a client do not count there
    """
    if split not in ("auto", "always"):
        raise DataError(f"split must be 'auto' or 'always', not {split!r}")
    federation = _Federation(features, labels, clients)
    statistics, n_samples, n_classes = {}, {}, {}
    for key, collected in federation.class_features():
        similarity = class_similarity(class_directions(collected, min_class_samples))
        statistics[key] = off_diagonal_stats(similarity)
        n_samples[key], n_classes[key] = int(collected.counts.sum()), int((collected.counts > 0).sum())
    found = split_clients(statistics, split)
    named = federation.named
    return Identification(
        clean=tuple(federation.clients[int(key)] for key in found.clean),
        noisy=tuple(federation.clients[int(key)] for key in found.noisy),
        not_assessed=named(found.not_assessed),
        statistics=named({key: (both[0], both[1]) for key, both in found.statistics.items()}),
        probability_noisy=named(found.posterior_noisy if found.has_two_groups else _nobody(found)),
        n_samples=named(n_samples),
        n_classes=named(n_classes),
        evidence=found.evidence,
        two_groups=found.two_groups,
    )


def relabel(
    features: Any,
    labels: Any,
    clients: Any,
    found: Identification | Iterable[Hashable] | None = None,
    *,
    rule: Rule = "auto",
    residual_rank: int = 12,
) -> Relabelled:
    """Return corrected labels for the noisy clients' samples, by what the clean clients' classes look like (Stage II).

    Parameters
    ----------
    features, labels, clients : as for `identify`
    found : what `identify` returned, or the noisy clients' names; by default `identify` is asked
    rule : "direction" takes the class whose mean direction is nearest, "residual" the class whose residual subspace
        explains least, "agreement" the class on which both agree, else the given label. "auto" is agreement where
        the clean clients have more samples of each class than there are features, as residual subspaces need, else
        direction
    residual_rank : vectors of a residual subspace (L in the paper)
    """
    if rule not in ("auto", "direction", "residual", "agreement"):
        raise DataError(f"rule must be 'auto', 'direction', 'residual' or 'agreement', not {rule!r}")
    federation = _Federation(features, labels, clients)
    found = identify(features, labels, clients) if found is None else found
    noisy, clean = federation.groups(found)
    spectra = {
        key: extract_spectra(collected, residual_rank, "after_block")
        for key, collected in federation.class_features(only=clean)
    }
    references = aggregate_references(spectra, weight="count_gap_share", min_samples=5, min_strength=0.03)
    if rule == "auto":
        counts = np.stack([each.counts for each in spectra.values()]).max(axis=0)
        has_enough = (counts[references.is_owned] > federation.features.shape[1]).all()
        rule = "agreement" if has_enough else "direction"
    given, corrected = federation.labels, federation.labels.copy()
    score, is_undecided = np.empty(len(given)), np.zeros(len(given), bool)
    for k in range(len(federation.clients)):
        rows = federation.rows(k)
        score[rows] = _margin(direction_scores(federation.features[rows], references), given[rows])
        if k in noisy:
            fixed = relabel_features(federation.features[rows], given[rows], references, rule)
            corrected[rows], is_undecided[rows] = fixed.labels, fixed.is_undecided
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
        clients=as_column("clients", clients),
        given=as_given,
    )


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
