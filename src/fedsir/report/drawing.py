"""SVG from plain calls: everything that is written into a drawing is escaped on the way."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fedsir.printable import printable


class Html(str):
    """Text that is markup already; templates put it in as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def escaped(text: object) -> str:
    """Return text as markup that shows it, control characters as escapes."""
    return html.escape(printable(str(text)), quote=True)


def _attribute(value: Any) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escaped(value)


def element(name: str, *children: object, **attributes: Any) -> Html:
    """Return an element; `data_tip` becomes data-tip, `class_` class, and an attribute that is None is left out.

    Children that are not `Html` are text.
    """
    words = [
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    ]
    inside = "".join(child if isinstance(child, Html) else escaped(child) for child in children)
    return Html(f"<{name}{''.join(words)}>{inside}</{name}>" if inside else f"<{name}{''.join(words)}/>")


def joined(parts: Iterable[Html]) -> Html:
    """Return markup one after the other."""
    return Html("".join(parts))


def svg(
    width: float,
    height: float,
    title: str,
    description: str,
    *children: Html,
    layout: str,
    key: str,
    is_natural: bool = False,
) -> Html:
    """Return a whole drawing.

    Parameters
    ----------
    title, description : for those who do not see it
    layout : "wide", "narrow" (the stylesheet shows one of them) or ""
    key : unique within the page
    is_natural : as wide as it was drawn where there is room, not as wide as the page
    """
    name = f"{key}-{layout}" if layout else key
    return element(
        "svg",
        element("title", title, id=f"{name}-t"),
        element("desc", description, id=f"{name}-d"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        class_=" ".join(filter(None, ("chart", layout, "natural" if is_natural else ""))),
        width=f"{width:.0f}" if is_natural else None,
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-t {name}-d",
    )


WIDE, NARROW = 900.0, 350.0  # CSS pixels that a chart is drawn for: a page, a phone


def both(draw: Callable[[float, str], Html]) -> Html:
    """Return a chart drawn twice, for wide and for narrow windows: text that shrinks with its chart cannot be read."""
    return joined((draw(WIDE, "wide"), draw(NARROW, "narrow")))


@dataclass(frozen=True)
class Scale:
    """From values low … high to places start … end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6, *, whole: bool = False) -> list[float]:
    """Return round numbers from low to high, about so many; only whole ones if asked for."""
    if not high > low:
        return [low]
    step = _step((high - low) / max(most - 1, 1))
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    return [round(k * step, 12) for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _step(least: float) -> float:
    """Return the next round number that is at least so large."""
    power: float = 10 ** math.floor(math.log10(least))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= least * (1 - 1e-9))


def rounded_range(
    values: Sequence[float], *, low: float | None = None, high: float | None = None
) -> tuple[float, float]:
    """Return a range that holds all values and ends at round numbers, or at the given ends."""
    least, most = min(values, default=0.0), max(values, default=1.0)
    if most - least < 1e-9:
        least, most = least - 0.05, most + 0.05
    step = _step((most - least) / 5)
    return (
        math.floor(least / step) * step if low is None else low,
        math.ceil(most / step) * step if high is None else high,
    )


def width_of(text: str) -> float:
    """Return roughly how wide text of 12 pixels is."""
    return sum(
        12.5 if ord(c) > 0x2E80 else 4.4 if c in "iljtf.,:;|!' " else 11.5 if c in "mwMW@%" else 8.0 for c in text
    )


def shortened(text: str, room: float) -> str:
    """Return text that fits into so many pixels, with … where something was cut."""
    text = printable(text)
    if width_of(text) <= room:
        return text
    while len(text) > 1 and width_of(text) + 8 > room:
        text = text[:-1]
    return text.rstrip() + "…"


def short_names(names: Sequence[str], room: float) -> list[str]:
    """Return names that fit into so many pixels; where beginnings are alike, the middle is cut, not the end."""
    found = [shortened(name, room) for name in names]
    if len(set(found)) == len(set(names)):
        return found
    return [_without_middle(name, room) for name in names]


def _without_middle(text: str, room: float) -> str:
    text = printable(text)
    if width_of(text) <= room:
        return text
    n_begin = n_end = 1
    while width_of(text[: n_begin + 1]) + 8 + width_of(text[-n_end - 1 :]) <= room:
        n_begin, n_end = (n_begin + 1, n_end) if n_begin <= n_end else (n_begin, n_end + 1)
    return f"{text[:n_begin].rstrip()}…{text[-n_end:].lstrip()}"


def marker(verdict: str, x: float, y: float, r: float = 5.5, **attributes: Any) -> Html:
    """Return a verdict's sign: a disc for clean, a diamond for noisy, a ring for not assessed."""
    kind = css_class(verdict)
    if kind == "noisy":
        a = 1.25 * r
        corners = f"M{x:.1f} {y - a:.1f}l{a:.1f} {a:.1f}l{-a:.1f} {a:.1f}l{-a:.1f} {-a:.1f}z"
        return element("path", d=corners, class_=kind, **attributes)
    return element("circle", cx=x, cy=y, r=r - 0.8 if kind == "unknown" else r, class_=kind, **attributes)


def css_class(verdict: str) -> str:
    """Return the stylesheet's word for a verdict, or "plain" for what is not about a verdict."""
    return verdict if verdict in ("clean", "noisy", "plain") else "unknown"
