"""SVG from plain calls."""

import pytest

from fedsir.report import drawing
from fedsir.report.drawing import Html, Scale, element


def test_text_and_attributes_are_escaped() -> None:
    made = element("text", "<b>&\x1b", data_tip="\"'><script>", x=1.0, y=2.25, class_="a", id=None)
    assert made == (
        '<text data-tip="&quot;&#x27;&gt;&lt;script&gt;" x="1" y="2.25" class="a">&lt;b&gt;&amp;\\u001b</text>'
    )
    assert element("g", Html("<path/>")) == "<g><path/></g>"
    assert element("path") == "<path/>"


def test_scale() -> None:
    scale = Scale(0.0, 2.0, 10.0, 30.0)
    assert [scale(v) for v in (0, 1, 2)] == [10, 20, 30]


@pytest.mark.parametrize(
    ("low", "high", "most", "found"),
    [
        (0, 1, 6, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0.905, 0.97, 6, [0.92, 0.94, 0.96]),
        (5, 5, 6, [5]),
    ],
)
def test_ticks_are_round(low: float, high: float, most: int, found: list[float]) -> None:
    assert drawing.ticks(low, high, most) == pytest.approx(found)


def test_rounds_have_whole_ticks() -> None:
    assert drawing.ticks(0, 8, 5, whole=True) == [0, 2, 4, 6, 8]
    assert drawing.ticks(0, 10, 5, whole=True) == [0, 3, 6, 9]
    assert drawing.ticks(0, 2, 11, whole=True) == [0, 1, 2]


def test_a_range_ends_at_round_numbers() -> None:
    assert drawing.rounded_range([0.21, 0.58]) == pytest.approx((0.2, 0.6))
    assert drawing.rounded_range([0.21, 0.58], low=0.0) == pytest.approx((0.0, 0.6))
    low, high = drawing.rounded_range([0.5, 0.5])
    assert low < 0.5 < high


def test_names_are_cut_so_that_they_differ() -> None:
    assert drawing.shortened("short", 200) == "short"
    assert drawing.shortened("a very long name of a client", 80).endswith("…")
    alike = [f"university hospital of somewhere, ward {i}" for i in range(12)]
    assert len(set(drawing.short_names(alike, 120))) == 12
    assert drawing.short_names(["one", "another"], 120) == ["one", "another"]
    for name in drawing.short_names(alike, 120):
        assert drawing.width_of(name) <= 125


def test_verdicts_differ_in_shape() -> None:
    clean, noisy, unknown = (drawing.marker(word, 0, 0) for word in ("clean", "noisy", "not assessed"))
    assert clean.startswith("<circle")
    assert noisy.startswith("<path")
    assert 'class="unknown"' in unknown


def test_a_drawing_says_what_it_shows() -> None:
    made = drawing.svg(100, 50, "A <title>", "What & why", element("g", "x"), layout="wide", key="k")
    assert 'role="img"' in made
    assert 'aria-labelledby="k-wide-t k-wide-d"' in made
    assert '<title id="k-wide-t">A &lt;title&gt;</title><desc id="k-wide-d">What &amp; why</desc>' in made
