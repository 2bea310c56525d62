"""The numbers that the paper prints, from numbers.csv: accuracy and ± in percent, as printed."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fedsir.data.noise_rate import NoiseRate


@dataclass(frozen=True)
class Printed:
    """One cell of a table of the paper.

    Attributes
    ----------
    noise_rate : None where the paper prints one number for all noise rates (Pruning, FedAvg without noise)
    accuracy, half_width : in [0, 1]; the ± is a 95 % bootstrap over the test images
    """

    table: str
    alpha: float
    variant: str
    noise_rate: float | None
    accuracy: float
    half_width: float


@cache
def printed_numbers() -> tuple[Printed, ...]:
    """Return all 490 of them."""
    text = (files("fedsir.paper") / "numbers.csv").read_text(encoding="utf-8")
    return tuple(
        Printed(
            table=row["table"],
            alpha=float(row["alpha"]),
            variant=row["method"],
            noise_rate=float(row["noise_rate"]) if row["noise_rate"] else None,
            accuracy=round(float(row["accuracy"]) / 100, 6),
            half_width=round(float(row["half_width"]) / 100, 6),
        )
        for row in csv.DictReader(text.splitlines())
    )


@cache
def _by_cell() -> dict[tuple[str, float, str, NoiseRate | None], Printed]:
    return {(p.table, p.alpha, p.variant, p.noise_rate): p for p in printed_numbers()}


def printed(table: str, alpha: float, variant: str, noise_rate: NoiseRate | None) -> Printed | None:
    """Return what the paper prints for a cell, None where it prints nothing."""
    cells = _by_cell()
    return cells.get((table, alpha, variant, noise_rate)) or cells.get((table, alpha, variant, None))
