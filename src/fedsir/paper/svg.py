"""What all charts share: one look, whatever matplotlib's settings are, and the same bytes for the same numbers."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, FAINT = "#222222", "#8a8a8a"
# Okabe and Ito's colours that colour-blind readers can tell apart, without the yellow that is too light for lines.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#000000", "#E69F00")

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: it can be searched, copied and read aloud
    "svg.hashsalt": "fedsir",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, so places do not depend on the machine's fonts
    "font.size": 10,
    "hatch.linewidth": 0.6,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a class or method may be called "$"
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.titlesize": 11,
    "axes.grid": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
}


@contextlib.contextmanager
def style() -> Iterator[None]:
    """Draw and write inside this block; afterwards matplotlib's settings are what they were."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        with matplotlib.rc_context(STYLE):
            yield


def to_svg(figure: Figure, title: str, description: str) -> bytes:
    """Return the figure as an SVG file with a title and a description for those who do not see it."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    buffer = io.BytesIO()
    metadata = {"Title": title, "Date": None, "Creator": None, "Format": None, "Type": None}
    FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)  # type: ignore[no-untyped-call]
    text = buffer.getvalue().decode()
    text = text.replace("<svg ", '<svg role="img" ', 1)
    return text.replace("</title>", f"</title>\n <desc>{escape(description)}</desc>", 1).encode()


def spread_apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places from low to high, at least `gap` apart, in the order of the wanted ones and near to them.

    Places that would touch are pushed apart around their common centre, which makes the sum of squared moves least.
    If they do not fit, they begin at `low` and leave the range at its top.
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[float, int]] = []  # (mean of the wanted places, each less the gaps below it; how many)
    for rank, i in enumerate(order):
        centre, size = wanted[i] - gap * rank, 1
        while blocks and blocks[-1][0] >= centre:
            below, n_below = blocks.pop()
            centre, size = (centre * size + below * n_below) / (size + n_below), size + n_below
        blocks.append((centre, size))
    highest = high - gap * (len(wanted) - 1)
    without_gaps = [max(low, min(centre, highest)) for centre, size in blocks for _ in range(size)]
    return [place for _, place in sorted((i, without_gaps[rank] + gap * rank) for rank, i in enumerate(order))]
