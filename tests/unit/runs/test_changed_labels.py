"""labels.csv: which samples it lists, in which order, with which columns."""

import numpy as np
import pytest

from fedsir.runs.changed_labels import changed_labels

GIVEN, CORRECTED = np.array([0, 1, 2, 1]), np.array([2, 1, 0, 0])
NAMES = ("cat", "dog", "owl")


def test_changed_labels_come_in_the_order_of_the_data_where_nobody_knows_how_doubtful_they_are() -> None:
    listed = changed_labels(["a.png", "b.png", "c.png", "d.png"], GIVEN, CORRECTED, NAMES)
    assert listed.decode().splitlines() == ["sample,given,suggested", "a.png,cat,owl", "c.png,owl,cat", "d.png,dog,cat"]


def test_the_most_doubtful_come_first_and_unknown_ones_last() -> None:
    listed = changed_labels(
        range(4), GIVEN, CORRECTED, NAMES, clients=("x", "x", "y", "y"), scores=np.array([0.25, 0.9, np.nan, 0.03125])
    )
    assert listed.decode().splitlines() == [
        "sample,client,given,suggested,score",
        "3,y,dog,cat,0.0312",
        "0,x,cat,owl,0.2500",
        "2,y,owl,cat,",
    ]


@pytest.mark.parametrize("score", [None, np.ones(4)])
def test_nothing_changed_is_a_header(score: np.ndarray | None) -> None:
    assert len(changed_labels("abcd", GIVEN, GIVEN, NAMES, scores=score).splitlines()) == 1


def test_names_that_need_quotes_and_odd_bytes_survive() -> None:
    listed = changed_labels(['a,"b\udcff'], np.array([0]), np.array([1]), NAMES)
    assert listed.decode().splitlines()[1] == '"a,""b\\udcff",cat,dog'
