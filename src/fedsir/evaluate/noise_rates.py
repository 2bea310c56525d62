"""How close a method's estimates of the clients' noise rates come to the truth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedsir.evaluate.reports import Report

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class NoiseRateReport(Report):
    """Absolute errors of estimated noise rates, over the clients that have an estimate.

    Attributes
    ----------
    mean, max : over these clients.
    n_clients : how many there are.
    """

    mean: float
    max: float
    n_clients: int


def score_noise_rates(
    true_by_client: Mapping[str, float], estimate_by_client: Mapping[str, float]
) -> NoiseRateReport | None:
    """Return how far estimates are from the shares of wrong given labels; None where there is no estimate."""
    errors = [abs(estimate_by_client[k] - rate) for k, rate in true_by_client.items() if k in estimate_by_client]
    return NoiseRateReport(sum(errors) / len(errors), max(errors), len(errors)) if errors else None
