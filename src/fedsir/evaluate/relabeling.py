"""How well wrong labels were corrected (Stage II against ground truth)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.evaluate.reports import Report, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    Labels = NDArray[np.integer[Any]]  # (n,) class numbers


@dataclass(frozen=True)
class RelabelReport(Report):
    """What relabeling did to the labels of one client, or of several pooled.

    The fields are counts, so that reports of several clients add up; the rates follow from them. What needs
    true labels is None when they are unknown; a rate is also None when there is nothing to divide by.

    Attributes
    ----------
    n : number of samples.
    n_changed : samples whose corrected label differs from the given one.
    n_wrong_before : samples whose given label is wrong.
    n_repaired : wrong before, right after.
    n_harmed : right before, wrong after.
    """

    n: int
    n_changed: int
    n_wrong_before: int | None
    n_repaired: int | None
    n_harmed: int | None

    @property
    def n_wrong_after(self) -> int | None:
        """Samples whose corrected label is wrong."""
        if self.n_wrong_before is None or self.n_repaired is None or self.n_harmed is None:
            return None
        return self.n_wrong_before - self.n_repaired + self.n_harmed

    @property
    def noise_before(self) -> float | None:
        """Share of wrong given labels."""
        return None if self.n_wrong_before is None else ratio(self.n_wrong_before, self.n)

    @property
    def noise_after(self) -> float | None:
        """Share of wrong corrected labels."""
        return None if self.n_wrong_after is None else ratio(self.n_wrong_after, self.n)

    @property
    def precision(self) -> float | None:
        """Share of the changed labels that are now right; None if none was changed."""
        return None if self.n_repaired is None else ratio(self.n_repaired, self.n_changed)

    @property
    def recall(self) -> float | None:
        """Share of the labels wrong before that are now right; None if none was wrong."""
        if self.n_repaired is None or self.n_wrong_before is None:
            return None
        return ratio(self.n_repaired, self.n_wrong_before)

    def as_dict(self) -> dict[str, object]:
        """Return the counts and the rates as JSON-ready values."""
        return super().as_dict() | {
            "n_wrong_after": self.n_wrong_after,
            "noise_before": self.noise_before,
            "noise_after": self.noise_after,
            "precision": self.precision,
            "recall": self.recall,
        }


def score_relabeling(true: Labels | None, given: Labels, corrected: Labels) -> RelabelReport:
    """Return what relabeling did to one set of samples; without samples there are no rates.

    Parameters
    ----------
    true : (n,) true labels, or None if they are unknown.
    given : (n,) given labels, before any correction.
    corrected : (n,) corrected labels.
    """
    n, n_changed = int(given.size), int(np.count_nonzero(corrected != given))
    if true is None:
        return RelabelReport(n, n_changed, n_wrong_before=None, n_repaired=None, n_harmed=None)
    was_wrong, is_wrong = given != true, corrected != true
    return RelabelReport(
        n,
        n_changed,
        n_wrong_before=int(np.count_nonzero(was_wrong)),
        # A changed label that is right now was wrong before: these are also the changed labels now right.
        n_repaired=int(np.count_nonzero(was_wrong & ~is_wrong)),
        n_harmed=int(np.count_nonzero(~was_wrong & is_wrong)),
    )


def overall(report_by_client: Mapping[str, RelabelReport], clients: Iterable[str]) -> RelabelReport:
    """Return one report over the samples of the chosen clients together, usually those that really are noisy.

    Samples are pooled: a client counts by its size. With no client chosen the report has ``n = 0`` and no
    rates. What needs true labels is None as soon as it is unknown for one of the chosen clients.
    """
    chosen = [report_by_client[name] for name in set(clients)]
    return RelabelReport(
        n=sum(report.n for report in chosen),
        n_changed=sum(report.n_changed for report in chosen),
        n_wrong_before=_sum_if_known(report.n_wrong_before for report in chosen),
        n_repaired=_sum_if_known(report.n_repaired for report in chosen),
        n_harmed=_sum_if_known(report.n_harmed for report in chosen),
    )


def _sum_if_known(counts: Iterable[int | None]) -> int | None:
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
