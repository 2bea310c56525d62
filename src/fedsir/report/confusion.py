"""Which labels become which: a heat map and its largest cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsir.report.charts.heat import confusion_chart, most_confused
from fedsir.report.drawing import Html
from fedsir.report.wording import count

MOST_PAIRS = 10  # rows of the table


@dataclass(frozen=True)
class Confusion:
    """A heat map of given and suggested labels, and its largest pairs as a table: (given, suggested, count)."""

    chart: Html
    pairs: tuple[tuple[str, str, str], ...]
    note: str


def confusion_of(
    counts: NDArray[np.int64], class_names: Sequence[str], withheld: Mapping[tuple[int, int], str] | None = None
) -> Confusion | None:
    """Return the heat map of (C, C) counts by given and suggested label; None if all lie on the diagonal.

    withheld : (given, suggested) → what to write instead of a count
    """
    withheld = withheld or {}
    off = counts - np.diag(np.diag(counts))
    if not off.any():
        return None
    chosen = most_confused(counts)
    names = [class_names[i] for i in chosen]
    place = {old: new for new, old in enumerate(chosen)}
    hidden = {(place[i], place[j]): words for (i, j), words in withheld.items() if i in place and j in place}
    order = np.argsort(-off, axis=None, kind="stable")[:MOST_PAIRS]
    pairs = [
        (class_names[i], class_names[j], withheld.get((i, j), count(int(off[i, j]))))
        for i, j in zip(*(index.tolist() for index in np.unravel_index(order, off.shape)), strict=True)
        if off[i, j] > 0
    ]
    note = ""
    if len(chosen) < len(class_names):
        note = f"The {len(chosen)} of {len(class_names):,} classes that are confused most are drawn."
    described = "; ".join(f"{given} as {suggested} {n}" for given, suggested, n in pairs[:8])
    chart = confusion_chart(
        counts[np.ix_(chosen, chosen)],
        names,
        key="confusion",
        title="Given and suggested labels",
        description=f"Largest: {described}.",
        hidden=hidden,
    )
    return Confusion(chart, tuple(pairs), note)
