"""Clients as points: what each one sent in Stage I, and the two groups that the mixture saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedsir.report.drawing import Html, Scale, both, css_class, element, joined, marker, shortened, svg, ticks, width_of
from fedsir.report.wording import number

MOST_NAMED = 30


@dataclass(frozen=True)
class Point:
    """A client's two numbers and its probability of being noisy; the latter is None where nobody computed it."""

    client: str
    verdict: str
    x: float
    y: float
    noisy_probability: float | None
    tip: str


@dataclass(frozen=True)
class Group:
    """A Gaussian: mean (2,) and covariance (2, 2)."""

    verdict: str
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]


def gaussians(points: Sequence[Point]) -> list[Group]:
    """Return the two groups of the mixture, from the points and their stored probabilities.

    Where EM has converged, a component's mean and covariance are those of the points weighted by their posterior, so
    nothing has to be fitted again.
    """
    known = [p for p in points if p.noisy_probability is not None]
    if len(known) < 3:
        return []
    places = np.array([(p.x, p.y) for p in known])
    noisy = np.array([p.noisy_probability for p in known], dtype=np.float64)
    found = []
    for verdict, weights in (("clean", 1 - noisy), ("noisy", noisy)):
        if weights.sum() < 1.5:  # one client has no spread to draw
            continue
        mean = weights @ places / weights.sum()
        spread = places - mean
        found.append(Group(verdict, mean, (weights[:, None] * spread).T @ spread / weights.sum()))
    return found


def scatter_chart(
    points: Sequence[Point],
    groups: Sequence[Group],
    *,
    x_label: str,
    y_label: str,
    key: str,
    title: str,
    description: str,
) -> Html:
    """Return the points, each with its verdict's sign, over ellipses of two standard deviations."""
    outlines = [_outline(group) for group in groups]
    xs = np.concatenate([[p.x for p in points], *(o[:, 0] for o in outlines)])
    ys = np.concatenate([[p.y for p in points], *(o[:, 1] for o in outlines)])

    def draw(width: float, layout: str) -> Html:
        is_wide = layout == "wide"
        height = 380.0 if is_wide else 330.0
        left, top, right, foot = 56.0, 12.0, width - 14, height - 46
        x = Scale(*_padded(xs), left, right)
        y = Scale(*_padded(ys), foot, top)
        parts = []
        for value in ticks(x.low, x.high, 7 if is_wide else 4):
            parts.append(element("path", d=f"M{x(value):.1f} {top}V{foot}", class_="grid"))
            parts.append(element("text", number(value), x=x(value), y=foot + 17, text_anchor="middle"))
        for value in ticks(y.low, y.high, 6):
            parts.append(element("path", d=f"M{left} {y(value):.1f}H{right}", class_="grid"))
            parts.append(element("text", number(value), x=left - 8, y=y(value) + 4, text_anchor="end"))
        parts.append(
            element("text", shortened(x_label, width - left), x=(left + right) / 2, y=height - 8, text_anchor="middle")
        )
        turned = f"translate(12 {(top + foot) / 2:.0f}) rotate(-90)"
        parts.append(element("text", y_label, transform=turned, text_anchor="middle"))
        for group, outline in zip(groups, outlines, strict=True):
            d = "M" + "L".join(f"{x(u):.1f} {y(v):.1f}" for u, v in outline) + "z"
            parts.append(element("path", d=d, class_=f"ellipse {css_class(group.verdict)}"))
        places = [(x(p.x), y(p.y)) for p in points]
        for point, (u, v) in zip(points, places, strict=True):
            parts.append(marker(point.verdict, u, v, 5.5 if len(points) <= 200 else 3.5, data_tip=point.tip))
        if len(points) <= MOST_NAMED:
            parts += _names([p.client for p in points], places, width)
        return svg(width, height, title, description, joined(parts), layout=layout, key=key)

    return both(draw)


def _outline(group: Group, n: int = 48) -> NDArray[np.float64]:
    """Return points (n, 2) two standard deviations from the mean."""
    values, vectors = np.linalg.eigh(group.covariance)
    angle = np.linspace(0, 2 * np.pi, n, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    outline: NDArray[np.float64] = group.mean + 2 * (circle * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return outline


def _padded(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    room = 0.06 * (high - low) or 0.05
    return low - room, high + room


def _names(names: Sequence[str], places: Sequence[tuple[float, float]], width: float) -> list[Html]:
    """Return names beside their points where there is room; a name that would cover another is left to the pointer."""
    taken = [(u - 7, v - 7, u + 7, v + 7) for u, v in places]
    written = []
    for name, (u, v) in zip(names, places, strict=True):
        text = shortened(name, 90)
        w = width_of(text)
        for x, y, anchor in (
            (u + 10, v + 4, "start"),
            (u - 10, v + 4, "end"),
            (u, v - 11, "middle"),
            (u, v + 19, "middle"),
        ):
            start = x if anchor == "start" else x - w if anchor == "end" else x - w / 2
            box = (start - 1, y - 10, start + w + 1, y + 2)
            if start > 0 and start + w < width and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                written.append(element("text", text, x=x, y=y, text_anchor=anchor, class_="strong"))
                break
    return written


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
