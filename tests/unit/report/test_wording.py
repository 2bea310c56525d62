"""Numbers as people read them."""

import math

import pytest

from fedsir.report import wording


@pytest.mark.parametrize(
    ("share", "digits", "words"),
    [
        (0.797, 1, "79.7\u202f%"),
        (1.0, 0, "100\u202f%"),
        (0.0, 1, "0.0\u202f%"),
        (0.0001, 1, "<\u202f0.1\u202f%"),
        (-0.05, 1, "−5.0\u202f%"),
        (None, 1, "–"),
        (math.nan, 1, "–"),
    ],
)
def test_percent(share: float | None, digits: int, words: str) -> None:
    assert wording.percent(share, digits) == words


def test_ticks_have_decimals_only_where_they_are_needed() -> None:
    assert [wording.tick_percent(v) for v in (0.9, 0.925)] == ["90\u202f%", "92.5\u202f%"]


@pytest.mark.parametrize(
    ("n", "words"), [(0.2, "0"), (99.4, "99"), (3379, "3,400"), (4123, "4,100"), (31049, "31,000")]
)
def test_estimates_have_two_digits(n: float, words: str) -> None:
    assert wording.about(n) == words


def test_lists_are_cut() -> None:
    assert wording.listed([]) == ""
    assert wording.listed(["a"]) == "a"
    assert wording.listed(["a", "b", "c"]) == "a, b and c"
    assert wording.listed(list("abcdefgh"), 3) == "a, b, c and 5 more"


def test_units() -> None:
    assert [wording.size(n) for n in (0, 999, 1500, 35_200_000)] == [
        "0\u202fB",
        "999\u202fB",
        "1.5\u202fkB",
        "35.2\u202fMB",
    ]
    assert [wording.duration(s) for s in (0.42, 62, 600, 6420)] == [
        "0.4\u202fs",
        "62\u202fs",
        "10\u202fmin",
        "1\u202fh 47\u202fmin",
    ]
    assert wording.points(0.067) == "+6.7"
    assert wording.points(-0.012) == "−1.2"
    assert wording.plural(1, "label") == "1 label"
    assert wording.plural(2000, "class", "classes") == "2,000 classes"


def test_moments_are_to_the_minute() -> None:
    assert wording.moment("2026-11-18T03:41:45+01:00") == "2026-11-18, 02:41 UTC"
    assert wording.moment("2026-11-18") == "2026-11-18"
    assert wording.moment("yesterday <b>") == "yesterday <b>"


def test_numbers_that_are_names_are_called_clients() -> None:
    assert wording.called("3") == "client 3"
    assert wording.called("Site 3") == "Site 3"
