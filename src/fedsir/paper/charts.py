"""The paper's pictures as SVG: class similarities, label noise removed, accuracy over rounds. Numbers in, bytes out.

Shares, accuracies and noise rates come in [0, 1]; the charts write them in percent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedsir.paper.svg import COLOURS, FAINT, INK, spread_apart, style, to_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float64]
Curve = tuple[Sequence[int], Sequence[float]]
"""Rounds, and the accuracy after each of them."""

MOST_NAMES = 20  # class names on an axis; of more, some are left out
LINES = ("-", (0, (5, 2)), (0, (1, 1.3)), (0, (6, 2, 1, 2)))
HATCHES = ("", "////", "\\\\\\\\", "xxxx")


# ---------------------------------------------------------------- class similarities


def similarity_matrices(panels: Sequence[tuple[str, Floats]], class_names: Sequence[str]) -> bytes:
    """Return heat maps of class similarities side by side, on one colour scale.

    Parameters
    ----------
    panels : (title, (C, C) similarities in [0, 1]) each; NaN where a class could not be measured
    class_names : (C,)
    """
    import matplotlib
    from matplotlib.figure import Figure

    n_classes = len(class_names)
    means = [_off_diagonal_mean(matrix) for _, matrix in panels]
    has_gaps = any(np.isnan(matrix).any() for _, matrix in panels)
    with style():
        side = 2.6 if n_classes <= 10 else 3.4
        longest = max(map(len, class_names)) * 0.075  # inches
        size = (1.4 + longest + (side + 0.2) * len(panels), side + 1.4 + longest + 0.2 * has_gaps)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
        colours = matplotlib.colormaps["YlGnBu"].resampled(64).with_extremes(bad="#ffffff")
        lowest = _lowest_tenth([matrix for _, matrix in panels])
        for axes, (title, matrix), mean in zip(grid, panels, means, strict=True):
            # Cells are shapes: browsers blur a picture of so few pixels when they stretch it.
            image = axes.pcolormesh(matrix, cmap=colours, vmin=lowest, vmax=1.0, edgecolors="face", linewidth=0.3)
            axes.set(aspect="equal", xlim=(0, n_classes), ylim=(n_classes, 0))
            _cross_out(axes, np.isnan(matrix))
            axes.set_title(title)
            axes.set_xlabel(f"mean off the diagonal: {'unknown' if np.isnan(mean) else f'{mean:.2f}'}", labelpad=8)
            _name_classes(axes, class_names)
        bar = figure.colorbar(image, ax=list(grid), fraction=0.04, pad=0.02, shrink=0.75)
        if bar.solids is not None:
            bar.solids.set(rasterized=False, edgecolor="face")
        bar.set_label("similarity of two classes\n(1: same direction)")
        figure.suptitle("How alike the classes of one client look", fontsize=12)
        gaps = "\ncrossed out: too few samples of that class" if has_gaps else ""
        _note(figure, f"off the diagonal: two different classes, the more alike the darker{gaps}")
        described = "; ".join(f"{title} {mean:.2f}" for (title, _), mean in zip(panels, means, strict=True))
        return to_svg(
            figure, "Class similarity matrices of one client", f"Mean similarity of two different classes: {described}."
        )


def _off_diagonal_mean(matrix: Floats) -> float:
    off_diagonal = matrix[~np.eye(len(matrix), dtype=bool)]
    known = off_diagonal[np.isfinite(off_diagonal)]
    return float(known.mean()) if len(known) else float("nan")


def _lowest_tenth(matrices: Sequence[Floats]) -> float:
    """Return where the colour scale begins: the tenth below all values."""
    known = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    return min(float(np.floor(known.min(initial=1.0) * 10) / 10), 0.9)


def _cross_out(axes: Axes, is_missing: NDArray[np.bool_]) -> None:
    rows, columns = np.nonzero(is_missing)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        x, y = [column + 0.2, column + 0.8], [row + 0.2, row + 0.8]
        axes.plot(x, y, color=FAINT, linewidth=0.7)
        axes.plot(x, y[::-1], color=FAINT, linewidth=0.7)


def _name_classes(axes: Axes, class_names: Sequence[str]) -> None:
    step = -(-len(class_names) // MOST_NAMES)
    places, names = list(range(0, len(class_names), step)), list(class_names[::step])
    is_upright = max(map(len, names)) <= 2
    middles = [place + 0.5 for place in places]
    axes.set_xticks(middles, names, rotation=0 if is_upright else 90, fontsize=9)
    axes.set_yticks(middles, names, fontsize=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


# ---------------------------------------------------------------- label noise removed


def noise_reduction(
    noise_rates: Sequence[float], reductions_by_rule: Mapping[str, Sequence[Sequence[float] | None]]
) -> bytes:
    """Return bars: how much label noise each relabelling rule removes at each noise rate.

    Parameters
    ----------
    noise_rates : (n_rates,) in [0, 1]
    reductions_by_rule : rule → per noise rate, one reduction (noise before - after, in [-1, 1]) per seed; None or
        nothing where there is no run, which stays empty
    """
    from matplotlib.figure import Figure

    n_rules, places = len(reductions_by_rule), np.arange(len(noise_rates), dtype=float)
    width = 0.8 / max(n_rules, 1)
    notes: dict[str, None] = {}  # in order, each once
    described = []
    with style():
        figure = Figure(figsize=(2.2 + max(len(noise_rates) * n_rules * 0.55, 4.2), 4.4), layout="constrained")
        axes = figure.subplots()
        for place, rate in zip(places, noise_rates, strict=True):
            ceiling = [100 * rate] * 2
            (limit,) = axes.plot([place - 0.44, place + 0.44], ceiling, color=FAINT, linestyle=(0, (3, 2)), linewidth=1)
            if place == 0:
                limit.set_label("nothing left wrong")
        for i, (rule, cells) in enumerate(reductions_by_rule.items()):
            label: str | None = rule
            for place, rate, cell in zip(places, noise_rates, cells, strict=True):
                if not cell:
                    notes["no bar: no run"] = None
                    continue
                values = 100 * np.asarray(cell, np.float64)
                mean, low, high = float(values.mean()), float(values.min()), float(values.max())
                x = place + (i - (n_rules - 1) / 2) * width
                colour, hatch = COLOURS[i % len(COLOURS)], HATCHES[i % len(HATCHES)]
                (bar,) = axes.bar(x, mean, 0.88 * width, label=label, color=colour, alpha=0.85)
                bar.set(hatch=hatch, edgecolor="white", linewidth=0.5)
                label = None  # one entry in the legend
                if len(values) > 1:
                    notes["thin line: lowest to highest of the seeds"] = None
                    axes.plot([x, x], [low, high], color=INK, linewidth=1.1)
                _write_value(axes, x, mean, low, high)
                described.append(f"{rule} at {rate:.0%} {mean:.1f}")
        axes.axhline(0, color=FAINT, linewidth=0.8)
        axes.set_xticks(places, [f"{100 * rate:g} %" for rate in noise_rates])
        axes.set_xlim(-0.6, len(noise_rates) - 0.4)
        axes.margins(y=0.08)
        axes.tick_params(axis="x", length=0)
        axes.set_xlabel("wrong labels on noisy clients before relabelling")
        axes.set_ylabel("wrong labels removed (percentage points)")
        if noise_rates:
            axes.legend(title="relabel rule", frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        _note(figure, "; ".join(sorted(notes, reverse=True)))
        figure.suptitle("How much label noise relabelling removes", fontsize=12)
        return to_svg(
            figure,
            "Label noise removed by rule and noise rate",
            f"Percentage points removed: {'; '.join(described) or 'no run yet'}.",
        )


def _write_value(axes: Axes, x: float, mean: float, low: float, high: float) -> None:
    is_up = mean >= 0
    axes.annotate(
        f"{mean:.1f}".replace("-", "−"),
        (x, max(high, mean) if is_up else min(low, mean)),
        xytext=(0, 2 if is_up else -2),
        textcoords="offset points",
        ha="center",
        va="bottom" if is_up else "top",
        fontsize=8.5,
    )


# ---------------------------------------------------------------- accuracy over rounds


def accuracy_over_rounds(curves_by_label: Mapping[str, Sequence[Curve]]) -> bytes:
    """Return one line per label, named at its end: the mean over its curves, with a band from lowest to highest.

    Parameters
    ----------
    curves_by_label : label → one (rounds, accuracies in [0, 1]) per seed; only rounds that all its seeds have are
        drawn, and a label without any is left out
    """
    from matplotlib.figure import Figure

    drawn = {label: joined for label, curves in curves_by_label.items() if (joined := _join(curves)) is not None}
    height = 4.4 if len(drawn) <= 8 else 5.2
    with style():
        figure = Figure(figsize=(8.2, height), layout="constrained")
        axes = figure.subplots()
        ends: list[tuple[float, float]] = []
        for i, (rounds, values) in enumerate(drawn.values()):
            colour, line = COLOURS[i % len(COLOURS)], LINES[i % len(LINES)]
            mean = values.mean(axis=0)
            if len(values) > 1:
                axes.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, linewidth=0)
            axes.plot(rounds, mean, color=colour, linestyle=line, linewidth=1.8)
            ends.append((float(rounds[-1]), float(mean[-1])))
        _name_lines(axes, list(drawn), ends)
        axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
        axes.set_xlabel("round")
        axes.set_ylabel("test accuracy (%)")
        axes.locator_params(axis="x", integer=True)
        several = any(len(values) > 1 for _, values in drawn.values())
        _note(figure, "line: mean over seeds; band: lowest to highest" if several else "")
        figure.suptitle("Accuracy of the global model over the rounds", fontsize=12)
        described = "; ".join(f"{label} {end:.1f} %" for label, (_, end) in zip(drawn, ends, strict=True))
        return to_svg(figure, "Test accuracy over rounds", f"Accuracy at the last round: {described or 'no run yet'}.")


def _join(curves: Sequence[Curve]) -> tuple[NDArray[np.int64], Floats] | None:
    """Return the rounds that all curves have, (r,), and their accuracies in percent, (n_curves, r)."""
    by_round = [dict(zip(rounds, values, strict=True)) for rounds, values in curves if len(rounds)]
    shared = sorted(set.intersection(*map(set, by_round))) if by_round else []
    if not shared:
        return None
    return np.array(shared), 100 * np.array([[curve[t] for t in shared] for curve in by_round])


def _name_lines(axes: Axes, labels: Sequence[str], ends: Sequence[tuple[float, float]]) -> None:
    """Write each label right of the axes, at the height of its line's end or moved where two would touch."""
    if not labels:
        return
    low, high = axes.get_ylim()
    left, right = axes.get_xlim()
    step = (right - left) * 0.03
    right = max(x for x, _ in ends) + step / 2
    places = spread_apart([y for _, y in ends], (high - low) * 0.047, low, high)
    for i, (label, (x, y), place) in enumerate(zip(labels, ends, places, strict=True)):
        colour, line = COLOURS[i % len(COLOURS)], LINES[i % len(LINES)]
        axes.plot([x, right, right + step], [y, y, place], color=colour, linewidth=0.6, clip_on=False)
        axes.plot([right + step, right + 2.5 * step], [place] * 2, color=colour, linestyle=line, clip_on=False)
        axes.text(right + 2.8 * step, place, f"{label}  {y:.1f} %", va="center", fontsize=9)
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def _note(figure: Figure, text: str) -> None:
    """Write how to read the chart below it."""
    if text:
        figure.supxlabel(text, fontsize=9)
        figure.set_layout_engine("constrained", h_pad=0.08)  # inches
