"""How well noisy clients were told from clean ones (Stage I against ground truth)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsir.evaluate.reports import Report, ratio

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence


@dataclass(frozen=True)
class IdentificationReport(Report):
    """Identification of noisy clients; noisy is the positive class.

    All scores are over the assessed clients: who could not be assessed was put on no side, right or wrong.

    Attributes
    ----------
    accuracy : share of the assessed clients that were put on the right side; None if nobody was assessed.
    precision : share of the clients found noisy that are noisy; None if none was found.
    recall : share of the assessed noisy clients that were found; None if there is none.
    f1 : 2·TP / (2·TP + FP + FN); None if no assessed client is noisy and none was found.
    false_alarms : clean clients found noisy, in client order.
    misses : noisy clients found clean, in client order.
    not_assessed : clients that could not be assessed, in client order.
    n_clients : number of clients, assessed or not.
    """

    accuracy: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    false_alarms: tuple[str, ...]
    misses: tuple[str, ...]
    not_assessed: tuple[str, ...]
    n_clients: int


def score_identification(
    clients: Sequence[str],
    true_noisy: Collection[str],
    found_noisy: Collection[str],
    not_assessed: Collection[str] = (),
) -> IdentificationReport:
    """Return how well ``found_noisy`` matches ``true_noisy``.

    Parameters
    ----------
    clients : names of all clients; their order is the order of the names in the report.
    true_noisy : the clients that really are noisy.
    found_noisy : the clients the method holds to be noisy.
    not_assessed : clients the method could not assess (too few classes, no answer). They are left out of the
        scores, whether or not ``found_noisy`` names them too.
    """
    assessed = [name for name in clients if name not in set(not_assessed)]
    noisy, found = set(true_noisy).intersection(assessed), set(found_noisy).intersection(assessed)
    false_alarms = tuple(name for name in assessed if name in found and name not in noisy)
    misses = tuple(name for name in assessed if name in noisy and name not in found)
    n_hits, n_errors = len(noisy & found), len(false_alarms) + len(misses)
    return IdentificationReport(
        accuracy=ratio(len(assessed) - n_errors, len(assessed)),
        precision=ratio(n_hits, len(found)),
        recall=ratio(n_hits, len(noisy)),
        f1=ratio(2 * n_hits, 2 * n_hits + n_errors),
        false_alarms=false_alarms,
        misses=misses,
        not_assessed=tuple(name for name in clients if name in set(not_assessed)),
        n_clients=len(clients),
    )
