"""Noisy clients found, missed and falsely accused."""

import json

import pytest

from fedsir.evaluate.identification import IdentificationReport, score_identification


def test_by_hand():
    # True noisy b, c, d; found b, c, a: 2 hits, 1 false alarm (a), 1 miss (d), 1 rightly clean (e).
    report = score_identification(["a", "b", "c", "d", "e"], {"b", "c", "d"}, {"a", "b", "c"})
    assert report == IdentificationReport(
        accuracy=pytest.approx(3 / 5),
        precision=pytest.approx(2 / 3),
        recall=pytest.approx(2 / 3),
        f1=pytest.approx(4 / 6),  # 2·2 / (2·2 + 1 + 1)
        false_alarms=("a",),
        misses=("d",),
        not_assessed=(),
        n_clients=5,
    )


@pytest.mark.parametrize(
    ("true_noisy", "found", "scores"),
    [
        ("b", "b", (1.0, 1.0, 1.0, 1.0)),
        ("abcd", "abcd", (1.0, 1.0, 1.0, 1.0)),
        ("b", "acd", (0.0, 0.0, 0.0, 0.0)),
        ("", "", (1.0, None, None, None)),  # right, but there is nothing to divide by
        ("", "b", (0.75, 0.0, None, 0.0)),
        ("b", "", (0.75, None, 0.0, 0.0)),
        ("a", "abc", (0.5, pytest.approx(1 / 3), 1.0, 0.5)),  # F1 is the harmonic mean: 2 / (3 + 1)
    ],
)
def test_accuracy_precision_recall_and_f1(true_noisy, found, scores):
    report = score_identification("abcd", set(true_noisy), set(found))
    assert (report.accuracy, report.precision, report.recall, report.f1) == scores
    assert set(report.false_alarms) == set(found) - set(true_noisy)
    assert set(report.misses) == set(true_noisy) - set(found)


@pytest.mark.parametrize("found", [{"b"}, {"b", "c", "d"}])
def test_clients_not_assessed_are_left_out_of_the_scores_and_listed(found):
    # c is noisy, d is clean; a is wrongly clean, b rightly noisy: one of two.
    report = score_identification(["a", "b", "c", "d"], {"a", "b", "c"}, found, not_assessed={"d", "c"})
    assert (report.accuracy, report.precision, report.recall) == (0.5, 1.0, 0.5)
    assert (report.false_alarms, report.misses) == ((), ("a",))
    assert (report.not_assessed, report.n_clients) == (("c", "d"), 4)
    assert score_identification(["a"], {"a"}, set(), {"a"}).accuracy is None


def test_names_come_in_client_order():
    report = score_identification(["10", "9", "1"], set(), {"1", "9", "10"})
    assert report.false_alarms == ("10", "9", "1")


def test_report_is_json_ready():
    written = score_identification(["a", "b", "c"], {"b"}, {"a"}, {"c"}).as_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert (written["false_alarms"], written["misses"], written["not_assessed"]) == (["a"], ["b"], ["c"])
