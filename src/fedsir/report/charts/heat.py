"""Matrices as cells whose strength says how large a value is; the number stands in the cell where it fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsir.report.drawing import Html, both, element, joined, short_names, svg, width_of
from fedsir.report.wording import count, number

MOST_CLASSES = 24


def most_confused(counts: NDArray[np.int64]) -> list[int]:
    """Return the classes to show of (C, C) counts: all if they fit, else those with the most off the diagonal."""
    if len(counts) <= MOST_CLASSES:
        return list(range(len(counts)))
    off = counts - np.diag(np.diag(counts))
    load = off.sum(axis=0) + off.sum(axis=1)
    chosen = np.argsort(-load, kind="stable")[:MOST_CLASSES]
    return sorted(int(i) for i in chosen if load[i] > 0)


def confusion_chart(
    counts: NDArray[np.int64],
    names: Sequence[str],
    *,
    key: str,
    title: str,
    description: str,
    hidden: dict[tuple[int, int], str] | None = None,
) -> Html:
    """Return given labels as rows, suggested ones as columns.

    Parameters
    ----------
    counts : (C, C) samples by given and suggested label; the diagonal is not drawn
    hidden : (row, column) → what to write where the count itself is withheld
    """
    hidden = hidden or {}
    n = len(names)
    most = max((int(counts[i, j]) for i in range(n) for j in range(n) if i != j), default=0)

    def draw(width: float, layout: str) -> Html:
        is_wide = layout == "wide"
        rows = short_names(names, 150.0 if is_wide else 62.0)
        longest = max(map(width_of, rows), default=0)
        left = longest + 34  # the axis' title, a gap, the names, a gap
        cell = min((width - left - 4) / max(n, 1), 42.0 if is_wide else 32.0)
        turned = longest > cell - 4
        columns = short_names(names, 104.0) if turned else list(names)
        top = (max(map(width_of, columns), default=0) + 12 if turned else 20.0) + 22
        middle = f"translate(11 {top + cell * n / 2:.0f}) rotate(-90)"
        parts = [
            element("text", "suggested label", x=max(left + cell * n / 2, 50.0), y=12.0, text_anchor="middle"),
            element("text", "given label", transform=middle, text_anchor="middle"),
        ]
        for i, (row, column) in enumerate(zip(rows, columns, strict=True)):
            x, y = left + cell * (i + 0.5), top + cell * (i + 0.5)
            parts.append(element("text", row, x=left - 8, y=y + 4, text_anchor="end", class_="strong"))
            if turned:
                where = f"translate({x + 4:.1f} {top - 7:.1f}) rotate(-90)"
                parts.append(element("text", column, transform=where, class_="strong"))
            else:
                parts.append(element("text", column, x=x, y=top - 7, text_anchor="middle", class_="strong"))
        for i in range(n):
            for j in range(n):
                value, withheld = int(counts[i, j]), hidden.get((i, j))
                place = {"x": left + cell * j + 0.5, "y": top + cell * i + 0.5, "width": cell - 1, "height": cell - 1}
                if i == j or (value == 0 and withheld is None):
                    parts.append(element("rect", **place, class_="empty", opacity="0.35" if i == j else None))
                    continue
                strength = 0.12 if withheld is not None else 0.12 + 0.88 * math.sqrt(value / most)
                words = withheld if withheld is not None else count(value)
                tip = f"given {names[i]}, suggested {names[j]}: {words}"
                parts.append(element("rect", **place, class_="heat", fill_opacity=strength, data_tip=tip))
                if width_of(words) <= cell - 2 and cell >= 16:
                    y = top + cell * (i + 0.5) + 4
                    shade = "on" if strength > 0.6 else "strong"
                    parts.append(
                        element(
                            "text",
                            words,
                            x=left + cell * (j + 0.5),
                            y=y,
                            text_anchor="middle",
                            class_=shade,
                            pointer_events="none",
                        )
                    )
        return svg(
            left + cell * n + 4,
            top + cell * n + 6,
            title,
            description,
            joined(parts),
            layout=layout,
            key=key,
            is_natural=True,
        )

    return both(draw)


def similarity_panel(
    matrix: NDArray[np.float64], names: Sequence[str], low: float, *, key: str, title: str, description: str
) -> Html:
    """Return one client's class similarities as a small square; NaN cells stay empty.

    Parameters
    ----------
    matrix : (C, C) in [0, 1]
    low : the similarity that is drawn faintest
    """
    n, side = len(names), 176.0
    cell = side / n
    parts = []
    for i in range(n):
        for j in range(n):
            value = float(matrix[i, j])
            place = {
                "x": cell * j,
                "y": cell * i,
                "width": cell - (0.6 if cell > 4 else 0),
                "height": cell - (0.6 if cell > 4 else 0),
            }
            if math.isnan(value):
                parts.append(element("rect", **place, class_="empty"))
            else:
                tip = f"{names[i]} and {names[j]}: {number(value)}"
                strength = 0.04 + 0.96 * max(0.0, min(1.0, (value - low) / (1 - low)))
                parts.append(element("rect", **place, class_="heat", fill_opacity=strength, data_tip=tip))
    parts.append(element("rect", x=0.0, y=0.0, width=side, height=side, class_="cell-frame"))
    return svg(side, side, title, description, joined(parts), layout="", key=key)
