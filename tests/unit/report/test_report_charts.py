"""Charts: what is where, and what is left out."""

import re

import numpy as np
import pytest

from fedsir.report.charts.heat import MOST_CLASSES, confusion_chart, most_confused, similarity_panel
from fedsir.report.charts.lines import Frame, Line, line_chart
from fedsir.report.charts.rows import MOST_ROWS, Axis, Change, Estimate, change_chart, interval_chart
from fedsir.report.charts.scatter import Point, gaussians, scatter_chart
from fedsir.report.drawing import WIDE
from fedsir.report.wording import percent, tick_percent

WORDS = {"key": "k", "title": "t", "description": "d"}
PERCENT = Axis("share", tick_percent, low=0.0, high=1.0)


def wide(chart: str) -> str:
    """The drawing for wide windows."""
    assert chart.count("<svg ") == 2
    return chart[: chart.index("</svg>")]


def test_gaussians_are_the_weighted_moments() -> None:
    places = [("a", 0.0, 0.0, 0.0), ("b", 2.0, 0.0, 0.0), ("c", 10.0, 4.0, 1.0), ("d", 10.0, 8.0, 1.0)]
    points = [Point(name, "clean", x, y, p, "") for name, x, y, p in places]
    clean, noisy = gaussians(points)
    assert clean.mean.tolist() == [1, 0]
    assert clean.covariance.tolist() == [[1, 0], [0, 0]]
    assert noisy.mean.tolist() == [10, 6]
    assert noisy.covariance.tolist() == [[0, 0], [0, 4]]


def test_one_client_has_no_ellipse() -> None:
    points = [Point(str(i), "clean", i, i, float(i == 2), "") for i in range(3)]
    assert [group.verdict for group in gaussians(points)] == ["clean"]
    assert gaussians(points[:2]) == []


def test_scatter_has_a_sign_per_client() -> None:
    points = [Point(str(i), "noisy" if i > 3 else "clean", i / 10, i / 20, float(i > 3), f"tip {i}") for i in range(8)]
    chart = wide(scatter_chart(points, gaussians(points), x_label="x", y_label="y", **WORDS))
    assert [f"tip {i}" in chart for i in range(8)] == [True] * 8
    assert chart.count("ellipse") == 2


def test_intervals_are_drawn_to_scale() -> None:
    chart = wide(interval_chart([Estimate("a", "noisy", 0.5, "50 %", "tip", 0.25, 0.75, true=1.0)], PERCENT, **WORDS))
    low, high = (float(x) for x in re.findall(r"M([\d.]+) [\d.]+v8", chart))
    (true,) = (float(x) for x in re.findall(r'd="M([\d.]+) [\d.]+v18"', chart))
    assert true - high == pytest.approx((high - low) / 2, abs=0.2)


def test_of_many_clients_the_first_are_drawn() -> None:
    many = [Estimate(f"c{i}", "noisy", 0.5, "50 %", f"tip {i}.") for i in range(1000)]
    chart = wide(interval_chart(many, PERCENT, **WORDS))
    assert chart.count("data-tip") == MOST_ROWS
    assert "tip 0." in chart
    assert f"tip {MOST_ROWS}." not in chart


def test_changes_go_from_before_to_after() -> None:
    chart = wide(change_chart([Change("a", "noisy", (0.8, 0.4, 0.1), "w", "tip")], PERCENT, **WORDS))
    start, end = map(float, re.search(r'd="M([\d.]+) [\d.]+H([\d.]+)" class="error', chart).groups())  # type: ignore[union-attr]
    assert start > end
    assert len(re.findall(r"v8", chart)) == 1  # the relabelling between


def test_lines_are_named_and_told_by_round() -> None:
    lines = [
        Line("one", ((0, 0.1), (1, 0.5)), band=((0, 0.0, 0.2), (1, 0.4, 0.6))),
        Line("two", ((0, 0.2), (1, 0.3))),
        Line("noisy", ((1, 0.1),), kind="noisy"),
    ]
    chart = wide(line_chart(lines, Frame("y", tick_percent, percent, marks=(1,)), **WORDS))
    assert "round 1 · one 50.0\u202f% · two 30.0\u202f% · noisy 10.0\u202f%" in chart
    assert chart.count("band") == 1
    assert 'data-of="2"' in chart
    dashes = set(re.findall(r'stroke-dasharray="([^"]+)"', chart))
    assert len(dashes) == 1  # the noisy line and the second one are dashed, the first is not
    assert f'viewBox="0 0 {WIDE:.0f}' in chart


def test_confusions_write_counts_and_hide_withheld_ones() -> None:
    counts = np.array([[9, 4, 0], [1, 9, 0], [0, 0, 9]])
    chart = wide(confusion_chart(counts, ["<a>", "b", "c"], hidden={(1, 0): "<5"}, **WORDS))
    assert "given &lt;a&gt;, suggested b: 4" in chart
    assert "given b, suggested &lt;a&gt;: &lt;5" in chart
    assert ">9<" not in chart
    assert chart.count('class="heat"') == 2


def test_of_many_classes_the_most_confused_are_drawn() -> None:
    counts = np.zeros((1000, 1000), np.int64)
    counts[5, 7] = counts[900, 901] = 3
    assert most_confused(counts) == [5, 7, 900, 901]
    counts[:, 0] = 1
    assert len(most_confused(counts)) == MOST_CLASSES


def test_similarities_leave_unknown_cells_empty() -> None:
    matrix = np.array([[1.0, np.nan], [np.nan, 1.0]])
    panel = similarity_panel(matrix, ["a", "b"], 0.5, **WORDS)
    assert panel.count('class="heat"') == 2
    assert panel.count('class="empty"') == 2
