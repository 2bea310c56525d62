"""Lines over the rounds of a run: accuracy, weights in the average, bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedsir.paper.svg import spread_apart
from fedsir.report.drawing import Html, Scale, both, element, joined, rounded_range, shortened, svg, ticks, width_of

DASHES = ("", "7 4", "2 4", "9 3 2 3", "4 2", "12 4", "1 3", "6 2 2 2")
MOST_TIPS = 240  # columns that the pointer can find
N_COLOURS = 8


@dataclass(frozen=True)
class Line:
    """A line: its name, its points by round, and a band from low to high by round, if it has one.

    kind : the stylesheet's class, "clean" or "noisy", instead of a colour of its own
    is_thin : drawn as one of many, without a name at its end
    """

    name: str
    points: tuple[tuple[int, float], ...]
    band: tuple[tuple[int, float, float], ...] = ()
    kind: str = ""
    is_thin: bool = False


@dataclass(frozen=True)
class Frame:
    """What the axes of a line chart are.

    write, tell : a value's words at the axis, and where it stands alone
    marks : rounds to mark with a vertical stroke
    reference : a value to mark with a horizontal one
    """

    y_label: str
    write: Callable[[float], str]
    tell: Callable[[float], str]
    low: float | None = None
    high: float | None = None
    marks: tuple[int, ...] = ()
    reference: float | None = None


def line_chart(lines: Sequence[Line], frame: Frame, *, key: str, title: str, description: str) -> Html:
    """Return the lines over rounds; each is told from the others by colour, dash and name."""
    values = [v for line in lines for _, v in line.points] + [v for line in lines for _, *b in line.band for v in b]
    rounds = sorted({t for line in lines for t, _ in line.points})
    low, high = rounded_range(
        [*values, *([] if frame.reference is None else [frame.reference])], low=frame.low, high=frame.high
    )
    named = [line for line in lines if not line.is_thin]

    def draw(width: float, layout: str) -> Html:
        is_wide = layout == "wide"
        height = 340.0 if is_wide else 280.0
        labels = [f"{line.name}  {frame.tell(line.points[-1][1])}" for line in named] if is_wide else []
        room = min(max(map(width_of, labels), default=0) + 30, 300) if labels else 10
        left = max(width_of(frame.write(v)) for v in ticks(low, high)) + 14
        top, foot, right = 26.0, height - 44, width - room
        x = Scale(rounds[0], max(rounds[-1], rounds[0] + 1), left, right)
        y = Scale(low, high, foot, top)
        parts = [element("text", shortened(frame.y_label, width), x=0.0, y=12.0)]
        for value in ticks(low, high):
            parts.append(element("path", d=f"M{left:.1f} {y(value):.1f}H{right:.1f}", class_="grid"))
            parts.append(element("text", frame.write(value), x=left - 8, y=y(value) + 4, text_anchor="end"))
        for t in ticks(rounds[0], rounds[-1], 11 if is_wide else 5, whole=True):
            parts.append(element("text", f"{t:.0f}", x=x(t), y=foot + 18, text_anchor="middle"))
        parts.append(element("text", "round", x=(left + right) / 2, y=height - 6, text_anchor="middle"))
        for t in frame.marks:
            parts.append(element("path", d=f"M{x(t):.1f} {top:.1f}V{foot:.1f}", class_="limit"))
        if frame.reference is not None:
            parts.append(element("path", d=f"M{left:.1f} {y(frame.reference):.1f}H{right:.1f}", class_="limit"))
        parts += [_drawn(line, i, x, y) for i, line in enumerate(lines)]
        parts += _columns(lines, rounds, x, top, foot, frame)
        if is_wide:
            parts += _ends(named, lines, labels, x, y, top, foot, width)
        return svg(width, height, title, description, joined(parts), layout=layout, key=key)

    return both(draw)


def colour_of(i: int) -> str:
    """Return the stylesheet's class of the line with that number."""
    return f"s{i % N_COLOURS}"


def swatch(i: int) -> Html:
    """Return a short piece of the line with that number, for a key."""
    stroke = element(
        "path",
        d="M0 5H28",
        class_="ink-line",
        fill="none",
        stroke="currentColor",
        stroke_width="2.5",
        stroke_dasharray=DASHES[i % len(DASHES)] or None,
    )
    return element("svg", stroke, viewBox="0 0 28 10", aria_hidden="true", class_=f"swatch {colour_of(i)}")


def _drawn(line: Line, i: int, x: Scale, y: Scale) -> Html:
    style = line.kind or f"ink-line {colour_of(i)}"
    parts = []
    if line.band:
        upper = [f"{x(t):.1f} {y(high):.1f}" for t, _, high in line.band]
        lower = [f"{x(t):.1f} {y(low):.1f}" for t, low, _ in reversed(line.band)]
        fill = line.kind or f"ink-fill {colour_of(i)}"
        parts.append(element("path", d="M" + "L".join(upper + lower) + "z", class_=f"band {fill}"))
    d = "M" + "L".join(f"{x(t):.1f} {y(v):.1f}" for t, v in line.points)
    if len(line.points) == 1:
        d += "h0.1"
    dash = (DASHES[1] if line.kind == "noisy" else "") if line.kind else DASHES[i % len(DASHES)]
    parts.append(
        element("path", d=d, class_=f"{'thin' if line.is_thin else 'line'} {style}", stroke_dasharray=dash or None)
    )
    return element("g", *parts, data_of=str(i))


def _columns(
    lines: Sequence[Line], rounds: Sequence[int], x: Scale, top: float, foot: float, frame: Frame
) -> list[Html]:
    """Return a strip per round that tells all values of that round."""
    step = -(-len(rounds) // MOST_TIPS)
    chosen = rounds[::step]
    half = (x.end - x.start) / max(len(chosen) - 1, 1) / 2
    by_round = [dict(line.points) for line in lines]
    found = []
    for t in chosen:
        told = [f"{line.name} {frame.tell(at[t])}" for line, at in zip(lines, by_round, strict=True) if t in at]
        more = f" · and {len(told) - 12} more" if len(told) > 12 else ""
        start, end = max(x(t) - half, x.start), min(x(t) + half, x.end)
        tip = f"round {t} · {' · '.join(told[:12])}{more}"
        found.append(
            element("rect", x=start, y=top, width=max(end - start, 1.0), height=foot - top, class_="hit", data_tip=tip)
        )
    return found


def _ends(
    named: Sequence[Line],
    lines: Sequence[Line],
    labels: Sequence[str],
    x: Scale,
    y: Scale,
    top: float,
    foot: float,
    width: float,
) -> list[Html]:
    """Return each line's name right of its end, moved apart where two would touch."""
    if not named:
        return []
    heights = [y(line.points[-1][1]) for line in named]
    places = spread_apart(heights, 16.0, top, foot)
    found = []
    for line, label, height, place in zip(named, labels, heights, places, strict=True):
        i = lines.index(line)
        end = x(line.points[-1][0])
        stroke = element(
            "path",
            d=f"M{end + 3:.1f} {height:.1f}L{x.end + 16:.1f} {place:.1f}",
            class_=f"thin {line.kind or 'ink-line ' + colour_of(i)}",
        )
        text = element("text", shortened(label, width - x.end - 22), x=x.end + 21, y=place + 4, class_="strong")
        found.append(element("g", stroke, text, data_of=str(i)))
    return found
