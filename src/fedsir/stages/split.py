"""Stage I, identify, the server's half: split clients into clean and noisy by the two numbers each one sent."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsir.stages.gaussian_groups import fitted_mixture, posterior

Array = NDArray[np.float64]
SIMULATED_AT_ONCE = 1_000_000  # simulated clients in memory: 8 MB an array, however many clients there are


@dataclass(frozen=True)
class OffDiagonal:
    """What a client tells the server in Stage I: Eq. (3), Eq. (4), and how many classes were usable."""

    mean: float
    energy: float
    n_usable_classes: int

    @property
    def fault(self) -> str | None:
        """Why these numbers cannot be compared with other clients', or None."""
        if self.n_usable_classes < 2:
            return f"only {self.n_usable_classes} usable class(es); two are needed"
        is_finite = math.isfinite(self.mean) and math.isfinite(self.energy)
        return None if is_finite else "its class similarities are not finite"


@dataclass(frozen=True)
class Evidence:
    """What speaks for two groups of clients rather than one; see `two_group_evidence`.

    bic_gain : BIC of one Gaussian minus BIC of two with a common variance; above 0 favours two
    separation : distance of the two group means in units of the spread within the groups
    p_value : how often clients of ONE Gaussian group would look at least as split as these
    """

    bic_gain: float
    separation: float
    p_value: float

    @property
    def is_convincing(self) -> bool:
        """Whether to believe in two groups: unlikely by chance, and far apart.

        The limits were chosen on simulated clients. Of federations of ten clients from one group, 2 % are wrongly
        called two groups if the group is normal, 3 % heavy-tailed, 6 % skewed, 9 % uniform (docs/stages.md).
        """
        return self.p_value < 0.02 and self.separation > 4.0


@dataclass(frozen=True)
class PairEvidence:
    """What speaks for two groups when clients are compared pair by pair; see `fedsir.stages.pairwise`.

    probability : of two groups rather than one, where both were as likely before
    separation : distance of the two groups' effects in units of the scatter of a clean client's effect
    """

    probability: float
    separation: float

    @property
    def is_convincing(self) -> bool:
        """Whether to believe in two groups; the limit was chosen on draws that no table has (docs/stages.md)."""
        return self.probability > 0.5


@dataclass(frozen=True)
class ClientSplit:
    """The server's verdict.

    clean, noisy : client ids in the given order; whoever could not be assessed is in neither
    statistics : client id → the numbers it sent: (mean, energy) in Stage I, its mean loss per class in `loss_split`
    posterior_noisy : client id → probability of the noisy component, for the assessed clients
    not_assessed : client id → reason
    evidence : None when fewer than two distinct clients could be compared
    has_two_groups : False when everybody assessed was declared clean for want of evidence
    is_forced : whether two groups were asked for, whatever the evidence
    noise_rates : client id → estimated share of wrong labels; empty unless clients were split by it
    effects : client id → effect above the clean clients, and its standard error; empty unless compared by pairs
    note : what a reader of the verdict would not expect; else empty
    """

    clean: tuple[str, ...]
    noisy: tuple[str, ...]
    statistics: dict[str, tuple[float, ...]]
    posterior_noisy: dict[str, float]
    not_assessed: dict[str, str]
    evidence: Evidence | PairEvidence | None
    has_two_groups: bool
    is_forced: bool = False
    noise_rates: dict[str, float] = field(default_factory=dict)
    effects: dict[str, tuple[float, float]] = field(default_factory=dict)
    note: str = ""

    @property
    def untrusted(self) -> tuple[str, ...]:
        """Whom training does not trust: the noisy clients, and those that could not be assessed."""
        return (*self.noisy, *self.not_assessed)

    def cleared(self, probability_noisy: Mapping[str, float], order: Iterable[str]) -> ClientSplit:
        """Return the split once some clients turned out to be clean, with how likely they are noisy all the same."""
        clean = {*self.clean, *probability_noisy}
        return replace(
            self,
            clean=tuple(k for k in order if k in clean),
            noisy=tuple(k for k in self.noisy if k not in clean),
            not_assessed={k: reason for k, reason in self.not_assessed.items() if k not in clean},
            posterior_noisy={**self.posterior_noisy, **probability_noisy},
        )

    @property
    def two_groups(self) -> Literal["asked for", "found", "not found"]:
        """How the two groups came about."""
        if not self.has_two_groups:
            return "not found"
        return "asked for" if self.is_forced else "found"

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> ClientSplit:
        """Rebuild a split from its JSON form (`dataclasses.asdict`); wrong types are a ValueError or TypeError."""
        names = [*tree["clean"], *tree["noisy"], *tree["not_assessed"], *tree["not_assessed"].values()]
        lists = (tree["clean"], tree["noisy"], *tree["statistics"].values())
        evidence: Evidence | PairEvidence | None = None
        if tree["evidence"] is not None:
            kind = PairEvidence if "probability" in tree["evidence"] else Evidence
            evidence = kind(**{name: _number(value) for name, value in tree["evidence"].items()})
        note = tree.get("note", "")  # older files have none
        # Older files do not say. Two groups that do not convince were asked for.
        is_convincing = evidence is not None and evidence.is_convincing
        flags = (tree["has_two_groups"], tree.get("is_forced", tree["has_two_groups"] and not is_convincing))
        if (
            not all(isinstance(entry, list | tuple) for entry in lists)
            or not all(isinstance(name, str) for name in names)
            or not all(isinstance(flag, bool) for flag in flags)
            or not isinstance(note, str)
        ):
            raise ValueError("a split of the clients has values of other types")
        return cls(
            clean=tuple(tree["clean"]),
            # Older files have those that could not be assessed among the noisy, too.
            noisy=tuple(client for client in tree["noisy"] if client not in tree["not_assessed"]),
            statistics={client: tuple(map(_number, sent)) for client, sent in tree["statistics"].items()},
            posterior_noisy={client: _number(share) for client, share in tree["posterior_noisy"].items()},
            not_assessed=dict(tree["not_assessed"]),
            evidence=evidence,
            has_two_groups=flags[0],
            is_forced=flags[1],
            noise_rates={client: _number(rate) for client, rate in tree.get("noise_rates", {}).items()},
            effects={client: _two_numbers(both) for client, both in tree.get("effects", {}).items()},
            note=note,
        )


def _number(value: float | None) -> float:
    """Return a number of a JSON file, in which null stands for what is not finite."""
    return math.nan if value is None else float(value)


def _two_numbers(values: Sequence[float | None]) -> tuple[float, float]:
    first, second = values
    return _number(first), _number(second)


def split_clients(
    statistics: Mapping[str, OffDiagonal],
    how: Literal["always", "auto"] = "always",
    missing: Mapping[str, str] | None = None,
    *,
    note: str = "",
) -> ClientSplit:
    """Split clients into clean and noisy by a two-component Gaussian mixture over (mean, energy).

    The clean component is the one of lower mean similarity. Neither the order of the clients nor the scale of the
    two statistics matters. A mixture of two always finds two groups: with `how="auto"` they count only when the
    evidence is convincing, otherwise every assessed client is clean.

    Parameters
    ----------
    statistics : client id → its statistics
    missing : client id → reason, for clients that never answered; they join the not assessed
    note : put into the split as it is
    """
    faults = {client: stats.fault for client, stats in statistics.items()}
    not_assessed = {**(missing or {}), **{client: fault for client, fault in faults.items() if fault}}
    assessed = [client for client in statistics if client not in not_assessed]
    points = np.array([[statistics[c].mean, statistics[c].energy] for c in assessed], dtype=np.float64).reshape(-1, 2)
    posterior, evidence, has_two_groups = np.zeros(len(assessed)), None, False
    if len(assessed) >= 2 and np.ptp(points[:, 0]) > 0:
        # The lower mean is the clean one: where all means are equal, nobody is accused.
        posterior, evidence = noisy_posterior(points), two_group_evidence(points[:, 0])
        has_two_groups = how == "always" or evidence.is_convincing
    is_noisy = has_two_groups & (posterior > 0.5)
    return ClientSplit(
        clean=tuple(client for client, is_so in zip(assessed, is_noisy, strict=True) if not is_so),
        noisy=tuple(client for client, is_so in zip(assessed, is_noisy, strict=True) if is_so),
        statistics={client: (stats.mean, stats.energy) for client, stats in statistics.items()},
        posterior_noisy={client: float(p) for client, p in zip(assessed, posterior, strict=True)},
        not_assessed=not_assessed,
        evidence=evidence,
        has_two_groups=has_two_groups,
        is_forced=how == "always",
        note=note,
    )


def noisy_posterior(points: Array) -> Array:
    """Return the posterior of the mixture component with the higher mean similarity, (K,), for points (K, 2)."""
    standard = (points - points.mean(axis=0)) / (points.std(axis=0) + 1e-12)
    mixture = fitted_mixture(standard, reg_covar=1e-6, n_init=30, max_iter=2000, random_state=42)
    return posterior(mixture, standard, int(np.argmax(mixture.means_[:, 0])))


def two_group_evidence(means: Array, simulations: int = 2000) -> Evidence:
    """Weigh two groups against one for the clients' mean similarities (K,).

    The best cut of the sorted values into two groups leaves the least scatter within them; the share of the scatter
    that is left is compared with that of simulated clients drawn from one Gaussian (fixed stream, so the answer is
    a function of the data alone). Scale and order of the clients do not matter.
    """
    ordered = np.sort(np.asarray(means, dtype=np.float64))
    n_clients = len(ordered)
    share, cut = _scatter_left(ordered[None])
    p_value = (1 + _n_as_split(float(share[0]), n_clients, simulations)) / (1 + simulations)
    low, high = ordered[: cut[0]], ordered[cut[0] :]
    within = math.sqrt(max(float(share[0]), 1e-12) * ordered.var())
    separation = float(high.mean() - low.mean()) / within
    return Evidence(_bic_gain(ordered), separation, p_value)


def _n_as_split(share: float, n_clients: int, simulations: int) -> int:
    """Return how many simulated federations of one group leave no more scatter than `share`."""
    random = np.random.default_rng(20260101)
    at_once = max(1, SIMULATED_AT_ONCE // n_clients)  # rows drawn piece by piece are the rows drawn together
    count = 0
    for start in range(0, simulations, at_once):
        null = random.standard_normal((min(at_once, simulations - start), n_clients))
        null.sort(axis=1)
        count += int((_scatter_left(null)[0] <= share).sum())
    return count


def _bic_gain(ordered: Array) -> float:
    standard = ((ordered - ordered.mean()) / ordered.std())[:, None]
    one = fitted_mixture(standard, 1, random_state=42)
    two = fitted_mixture(standard, 2, covariance_type="tied", n_init=5, random_state=42)
    return float(one.bic(standard) - two.bic(standard))


def _scatter_left(ordered: Array) -> tuple[Array, NDArray[np.int64]]:
    """Return, per row of sorted values (m, K), within-group scatter / total scatter at the best cut, and the cut."""
    n = ordered.shape[1]
    centred = ordered - ordered.mean(axis=1, keepdims=True)
    sizes = np.arange(1, n)
    left = np.cumsum(centred, axis=1)[:, :-1]  # sum of the `sizes` smallest; the others sum to its negative
    between = left**2 * (1 / sizes + 1 / (n - sizes))
    best = between.argmax(axis=1)
    total = (centred**2).sum(axis=1)
    left_over = 1 - between[np.arange(len(ordered)), best] / np.where(total > 0, total, 1)
    return left_over, best + 1
