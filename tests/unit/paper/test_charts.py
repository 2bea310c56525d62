"""Charts: the same bytes for the same numbers, readable text, nothing invented where numbers are missing."""

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable

import matplotlib
import numpy as np
import pytest

from fedsir.paper.charts import accuracy_over_rounds, noise_reduction, similarity_matrices
from fedsir.paper.svg import spread_apart

SVG = "{http://www.w3.org/2000/svg}"
NAN = math.nan
CLEAN = np.array([[1.0, 0.2, 0.4], [0.2, 1.0, 0.3], [0.4, 0.3, 1.0]])  # off the diagonal: 0.3 on average
GAP = np.array([[1.0, NAN, 0.6], [NAN, NAN, NAN], [0.6, NAN, 1.0]])


def texts(svg: bytes) -> list[str]:
    """Return every text in the picture, in order."""
    return ["".join(element.itertext()) for element in ET.fromstring(svg).iter(f"{SVG}text")]


def n_bars(svg: bytes) -> int:
    """Return how many values are written above bars: they alone have a decimal point."""
    return sum("." in text for text in texts(svg))


def similarities() -> bytes:
    return similarity_matrices([("clean", CLEAN), ("40 % wrong", CLEAN)], ["cat", "dog & co", "<ship>"])


def reductions() -> bytes:
    return noise_reduction([0.4, 0.8], {"direction": [[0.3, 0.32], None], "agreement": [[-0.05], [0.61]]})


def accuracies() -> bytes:
    return accuracy_over_rounds({"FedSIR": [([1, 2, 3], [0.1, 0.5, 0.8]), ([1, 2, 3], [0.2, 0.6, 0.9])]})


@pytest.mark.parametrize("draw", [similarities, reductions, accuracies])
def test_same_numbers_same_bytes_whatever_matplotlib_is_set_to(draw: Callable[[], bytes]) -> None:
    first = draw()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "svg.hashsalt": "other", "axes.grid": True}):
        mine = dict(matplotlib.rcParams)
        assert draw() == first
        assert dict(matplotlib.rcParams) == mine


@pytest.mark.parametrize("draw", [similarities, reductions, accuracies])
def test_it_has_a_title_and_a_description_and_no_date(draw: Callable[[], bytes]) -> None:
    root = ET.fromstring(draw())
    assert root.get("role") == "img"
    assert [child.tag for child in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert all(child.text for child in root[:2])
    assert b"dc:date" not in draw()


# ---------------------------------------------------------------- class similarities


def test_cells_are_shapes_not_a_stretched_picture() -> None:
    root = ET.fromstring(similarities())
    assert not list(root.iter(f"{SVG}image"))
    cells = [group for group in root.iter(f"{SVG}g") if group.get("id", "").startswith("QuadMesh")]
    assert [len(list(group.iter(f"{SVG}path"))) for group in cells[:2]] == [9, 9]


def test_panels_say_what_they_are_and_how_alike_classes_are() -> None:
    written = texts(similarities())
    assert {"clean", "40 % wrong", "cat", "dog & co", "<ship>"} <= set(written)
    assert written.count("mean off the diagonal: 0.30") == 2
    assert not any("crossed out" in text for text in written)


def test_a_class_that_could_not_be_measured_is_crossed_out_and_not_in_the_mean() -> None:
    with_gap, without = (similarity_matrices([("", matrix)], "abc") for matrix in (GAP, CLEAN))
    assert "mean off the diagonal: 0.60" in texts(with_gap)
    assert any("crossed out" in text for text in texts(with_gap))
    lines = [len(ET.fromstring(svg).findall(f".//{SVG}path")) for svg in (with_gap, without)]
    assert lines[0] - lines[1] == 5 * 2  # two strokes for each of five NaN


def test_a_matrix_without_any_number() -> None:
    svg = similarity_matrices([("nothing", np.full((2, 2), NAN))], "ab")
    assert "mean off the diagonal: unknown" in texts(svg)


def test_of_many_classes_some_are_named() -> None:
    names = [f"class {i}" for i in range(100)]
    written = texts(similarity_matrices([("many", np.eye(100))], names))
    assert [text for text in written if text.startswith("class")] == names[::5] * 2


# ---------------------------------------------------------------- label noise removed


def test_bars_carry_their_mean_in_percentage_points() -> None:
    written = texts(reductions())
    assert {"31.0", "−5.0", "61.0", "40 %", "80 %", "direction", "agreement"} <= set(written)
    assert "thin line: lowest to highest of the seeds; no bar: no run" in written


def test_a_missing_run_is_no_bar_and_zero_is_one() -> None:
    for missing in (None, []):
        svg = noise_reduction([0.2, 0.4], {"residual": [[0.0], missing]})
        assert n_bars(svg) == 1
        assert "0.0" in texts(svg)
    assert n_bars(noise_reduction([0.2, 0.4], {"residual": [[0.0], [0.0]]})) == 2
    assert n_bars(noise_reduction([0.2], {"residual": [None]})) == 0


# ---------------------------------------------------------------- accuracy over rounds


def test_a_line_ends_in_its_name_and_its_mean() -> None:
    written = texts(accuracies())
    assert "FedSIR  85.0 %" in written
    assert any("band" in text for text in written)
    assert not any("band" in text for text in texts(accuracy_over_rounds({"one": [([1], [0.5])]})))


def test_only_rounds_that_all_seeds_have_count() -> None:
    svg = accuracy_over_rounds(
        {"a": [([1, 2, 3], [0.1, 0.2, 0.9]), ([2], [0.4]), ([], [])], "none": [], "empty": [([], [])]}
    )
    assert "a  30.0 %" in texts(svg)
    assert not {"none", "empty"} & {text.split()[0] for text in texts(svg)}


def test_names_of_twelve_equal_lines_do_not_touch() -> None:
    curves = {f"method {i}": [(range(5), [0.1, 0.3, 0.6, 0.8, 0.99])] for i in range(12)}
    root = ET.fromstring(accuracy_over_rounds(curves))
    heights = sorted(float(t.get("y", "nan")) for t in root.iter(f"{SVG}text") if "".join(t.itertext())[:6] == "method")
    assert len(heights) == 12
    assert np.diff(heights).min() > 9  # the size of the letters
    assert heights[0] > 0
    assert heights[-1] < float(root.get("viewBox", "").split()[3])


def test_nothing_to_draw_is_still_a_picture() -> None:
    assert "round" in texts(accuracy_over_rounds({}))
    assert "relabel rule" not in (written := texts(noise_reduction([], {})))
    assert "wrong labels removed (percentage points)" in written


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([5.0, 1.0], [5.0, 1.0]),  # far enough apart
        ([3.0, 3.0], [2.5, 3.5]),  # around their centre, in the given order
        ([3.0, 2.9, 3.1], [3.0, 2.0, 4.0]),
        ([3.0, 3.0, 4.2], [2.4, 3.4, 4.4]),  # pushed pairs push on
        ([10.0, 10.0], [9.0, 10.0]),  # not above the top
        ([0.0, 0.1], [0.0, 1.0]),  # nor below the bottom
    ],
)
def test_places_are_moved_as_little_as_can_be(wanted: list[float], expected: list[float]) -> None:
    assert spread_apart(wanted, 1.0, 0.0, 10.0) == pytest.approx(expected)
