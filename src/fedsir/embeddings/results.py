"""What `identify` and `relabel` return."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsir.frames import to_frame
from fedsir.stages.split import Evidence, PairEvidence


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
        well it fits. 0.5 is a tie, or a class of which there are too few samples to judge
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
