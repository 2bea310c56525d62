"""Charts with one row per client: estimates with their intervals, and label noise before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from fedsir.report.drawing import (
    Html,
    Scale,
    both,
    css_class,
    element,
    joined,
    marker,
    rounded_range,
    short_names,
    shortened,
    svg,
    ticks,
    width_of,
)

MOST_ROWS = 40
ROW, TOP, BOTTOM = 24.0, 12.0, 42.0  # pixels


@dataclass(frozen=True)
class Estimate:
    """What is known of one client.

    value, low, high : the estimate and the ends of its interval; low and high are None without one
    words : the value as it is written at the row's end
    tip : what the pointer shows
    true : the true value, where it is known
    others : further values, drawn as small strokes
    """

    client: str
    verdict: str
    value: float
    words: str
    tip: str
    low: float | None = None
    high: float | None = None
    true: float | None = None
    others: tuple[float, ...] = ()


@dataclass(frozen=True)
class Change:
    """Label noise of one client: `rates` before, after each relabelling, and at the end; shares in [0, 1]."""

    client: str
    verdict: str
    rates: tuple[float, ...]
    words: str
    tip: str


@dataclass(frozen=True)
class Axis:
    """What the values of a row chart are.

    label : below the axis
    write : value → the words at a tick
    low, high : where the axis ends; None where the values decide
    limit : a value to mark, and its name
    """

    label: str
    write: Callable[[float], str]
    low: float | None = None
    high: float | None = None
    limit: tuple[float, str] | None = field(default=None)


Row = TypeVar("Row", Estimate, Change)


def interval_chart(estimates: Sequence[Estimate], axis: Axis, *, key: str, title: str, description: str) -> Html:
    """Return a row per client, in the given order: the estimate's sign, its interval, the true value as a stroke."""
    shown = estimates[:MOST_ROWS]
    reach = [v for e in shown for v in (e.value, e.low, e.high, e.true, *e.others) if v is not None]

    def draw_row(estimate: Estimate, scale: Scale, y: float) -> Html:
        parts = [element("rect", x=0.0, y=y - ROW / 2, width="100%", height=ROW, class_="hit")]
        kind = css_class(estimate.verdict)
        if estimate.low is not None and estimate.high is not None:
            low, high = scale(estimate.low), scale(estimate.high)
            ends = f"M{low:.1f} {y - 4:.1f}v8M{low:.1f} {y:.1f}H{high:.1f}M{high:.1f} {y - 4:.1f}v8"
            parts.append(element("path", d=ends, class_=f"error {kind}"))
        if estimate.true is not None:
            parts.append(element("path", d=f"M{scale(estimate.true):.1f} {y - 9:.1f}v18", class_="truth"))
        if estimate.others:
            strokes = "".join(f"M{scale(value):.1f} {y - 6:.1f}v12" for value in estimate.others)
            parts.append(element("path", d=strokes, class_="axis"))
        parts.append(marker(estimate.verdict, scale(estimate.value), y))
        return element("g", *parts, data_tip=estimate.tip)

    return _row_chart(shown, reach, axis, draw_row, key=key, title=title, description=description)


def change_chart(changes: Sequence[Change], axis: Axis, *, key: str, title: str, description: str) -> Html:
    """Return a row per client: a ring before, a small stroke after each relabelling, a filled sign at the end."""
    shown = changes[:MOST_ROWS]

    def draw_row(change: Change, scale: Scale, y: float) -> Html:
        before, after = scale(change.rates[0]), scale(change.rates[-1])
        steps = "".join(f"M{scale(rate):.1f} {y - 4:.1f}v8" for rate in change.rates[1:-1])
        return element(
            "g",
            element("rect", x=0.0, y=y - ROW / 2, width="100%", height=ROW, class_="hit"),
            element("path", d=f"M{before:.1f} {y:.1f}H{after:.1f}", class_=f"error {css_class(change.verdict)}"),
            *([element("path", d=steps, class_="axis")] if steps else []),
            element("circle", cx=before, cy=y, r=4.6, class_="unknown"),
            marker(change.verdict if change.verdict in ("clean", "noisy") else "clean", after, y),
            data_tip=change.tip,
        )

    reach = [rate for change in shown for rate in change.rates]
    return _row_chart(shown, reach, axis, draw_row, key=key, title=title, description=description)


def _row_chart(
    rows: Sequence[Row],
    reach: Sequence[float],
    axis: Axis,
    draw_row: Callable[[Row, Scale, float], Html],
    *,
    key: str,
    title: str,
    description: str,
) -> Html:
    low, high = rounded_range(reach, low=axis.low, high=axis.high)
    height = TOP + ROW * len(rows) + BOTTOM

    def draw(width: float, layout: str) -> Html:
        is_wide = layout == "wide"
        names = min(max((width_of(row.client) for row in rows), default=0) + 14, 220 if is_wide else 96)
        ends = max((width_of(row.words) for row in rows), default=0) + 18
        scale = Scale(low, high, names + 8, width - ends - 8)
        foot = TOP + ROW * len(rows)
        parts = []
        marks = ticks(low, high, 8 if is_wide else 4)
        for value in marks:
            parts.append(element("path", d=f"M{scale(value):.1f} {TOP}V{foot:.1f}", class_="grid"))
        for value, place in _apart([(value, scale(value)) for value in marks], axis.write):
            parts.append(element("text", axis.write(value), x=place, y=foot + 17, text_anchor="middle"))
        if axis.limit is not None and low <= axis.limit[0] <= high:
            parts.append(element("path", d=f"M{scale(axis.limit[0]):.1f} {TOP - 6}V{foot:.1f}", class_="limit"))
        label = shortened(axis.label, width)
        middle = min(max((scale.start + scale.end) / 2, width_of(label) / 2), width - width_of(label) / 2)
        parts.append(element("text", label, x=middle, y=foot + 36, text_anchor="middle"))
        clients = short_names([row.client for row in rows], names - 8)
        for i, (row, client) in enumerate(zip(rows, clients, strict=True)):
            y = TOP + ROW * (i + 0.5)
            parts.append(draw_row(row, scale, y))
            parts.append(element("text", client, x=0.0, y=y + 4, class_="strong"))
            parts.append(element("text", row.words, x=width, y=y + 4, text_anchor="end"))
        return svg(width, height, title, description, joined(parts), layout=layout, key=key)

    return both(draw)


def _apart(marks: Sequence[tuple[float, float]], write: Callable[[float], str]) -> Sequence[tuple[float, float]]:
    """Return the ticks whose words fit next to each other: all of them, or every second."""
    if any(b - a < (width_of(write(u)) + width_of(write(v))) / 2 + 6 for (u, a), (v, b) in pairwise(marks)):
        return marks[::2]
    return marks
