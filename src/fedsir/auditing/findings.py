"""What an audit says of samples and of clients, wherever it is computed: at one desk, or by each site for itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.table import Table
from fedsir.stages.bayes import LabelPosterior
from fedsir.stages.discriminant import Booleans
from fedsir.stages.rate_interval import RateInterval
from fedsir.stages.spectrum import Array, Labels

UNKNOWN_SCORE = 0.5  # of a sample that cannot be judged: as likely right as wrong
VERDICTS = ("noisy", "clean", "not assessed")  # worst first
PARTS = ("all", "most of", "fewer than half of")  # of a client's samples, those that could be judged


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Findings:
    """What is known of the samples of a client, (n,) each, in the client's order.

    suggested : the class it looks like; the given one where nothing speaks against it
    score : probability that the given label is right
    suggested_probability : that of the suggested one
    is_judged : False where others have too few samples of the class
    """

    suggested: Labels
    score: Array
    suggested_probability: Array
    is_judged: Booleans

    @classmethod
    def of(cls, given: Labels, found: LabelPosterior) -> Findings:
        """Return what the weighed labels of a client say of its given ones, (n,)."""
        rows = np.arange(len(given))
        own = found.probabilities[rows, given]
        best = found.labels
        best = np.where(found.probabilities[rows, best] > own, best, given)  # a tie is no accusation
        chosen = found.probabilities[rows, best]
        return cls(
            suggested=np.where(found.is_judged, best, given),
            score=np.where(found.is_judged, own, UNKNOWN_SCORE).clip(0, 1),
            suggested_probability=np.where(found.is_judged, chosen, UNKNOWN_SCORE).clip(0, 1),
            is_judged=found.is_judged,
        )

    def ranks(self) -> NDArray[np.int64]:
        """Return each sample's place in the client's list: by score, those that cannot be judged last."""
        ranks = np.zeros(len(self.score), np.int64)
        ranks[np.lexsort((np.arange(len(ranks)), self.score, ~self.is_judged))] = np.arange(1, len(ranks) + 1)
        return ranks

    def part_judged(self) -> str:
        """Return one of PARTS: a number could leave a small count to be computed, which a site must not tell."""
        share = self.is_judged.mean()
        return PARTS[0] if share == 1 else PARTS[1] if share >= 0.5 else PARTS[2]

    def cells(self, given: Labels) -> list[tuple[int, int, int]]:
        """Return (given, suggested, count) of the client's suspicious samples, the most frequent first."""
        moved = self.suggested != given
        pairs = Counter(zip(given[moved].tolist(), self.suggested[moved].tolist(), strict=True))
        return [(*pair, count) for pair, count in sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))]


def client_row(
    client: Any,
    n_samples: int,
    n_classes: int,
    verdict: str,
    reason: str,
    *,
    judged: str,
    n_others: int,
    interval: RateInterval | None,
    probability: float,
    suspicious: int,
) -> dict[str, Any]:
    """Return what the table of clients says of one.

    `judged` is one of PARTS; `probability` is what is known of the client without an interval.
    """
    others = f"{n_others:,} other client{'s' if n_others > 1 else ''}"
    evidence = f"how alike its classes are, compared with {others}"
    if interval is not None:
        evidence = f"{judged} {n_samples:,} samples judged by {others}"
    return {
        "client": client,
        "samples": n_samples,
        "classes": n_classes,
        "verdict": verdict,
        "reason": reason,
        "evidence": evidence,
        "noise_rate": np.nan if interval is None else interval.rate,
        "noise_rate_low": np.nan if interval is None else interval.low,
        "noise_rate_high": np.nan if interval is None else interval.high,
        "probability_noisy": probability if interval is None else interval.probability_noisy,
        "suspicious": suspicious,
    }


def worst_first(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of clients in the order of the table; a count that is hidden, or not there, is none."""

    def badness(row: dict[str, Any]) -> tuple[int, float, int]:
        n = row["suspicious"] if isinstance(row["suspicious"], int) else 0
        return VERDICTS.index(row["verdict"]), -float(np.nan_to_num(row["noise_rate"])), -n

    return sorted(rows, key=badness)


def clients_table(rows: Iterable[dict[str, Any]]) -> Table:
    """Return a row per client, worst first."""
    ordered = worst_first(rows)
    numbers = {"samples": np.int64, "classes": np.int64, "suspicious": np.int64}
    numbers |= dict.fromkeys(("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy"), np.float64)  # type: ignore[arg-type]
    columns: dict[str, Any] = {name: [row[name] for row in ordered] for name in ordered[0]}
    return Table(columns | {name: np.array(columns[name], kind) for name, kind in numbers.items()})


def confusion_table(cells: Iterable[tuple[Any, Any, Any, int]]) -> Table:
    """Return rows of client, given, suggested and count as a table; none are a table, too."""
    listed = list(cells)
    named = ("client", "given", "suggested")
    columns: dict[str, Any] = {name: [cell[i] for cell in listed] for i, name in enumerate(named)}
    return Table(columns | {"count": np.array([cell[3] for cell in listed], np.int64)})


def labels_like(given: NDArray[Any], classes: tuple[Any, ...], suggested: Labels, labels: Labels) -> NDArray[Any]:
    """Return suggested labels (n,) of the kind that was given; `labels` are the given ones by number."""
    of_any_kind = np.empty(len(classes), object)
    of_any_kind[:] = classes
    names = np.empty(len(classes), given.dtype)
    names[:] = of_any_kind
    return np.where(suggested != labels, names[suggested], given)
