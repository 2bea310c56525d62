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


def test_f1_is_the_harmonic_mean_of_precision_and_recall():
    report = score_identification(list("abcd"), {"a"}, {"a", "b", "c"})
    assert (report.precision, report.recall) == (pytest.approx(1 / 3), 1.0)
    assert report.f1 == pytest.approx(2 / (3 + 1))


def test_perfect():
    report = score_identification(["a", "b", "c"], {"b"}, {"b"})
    assert (report.accuracy, report.precision, report.recall, report.f1) == (1.0, 1.0, 1.0, 1.0)
    assert report.false_alarms == report.misses == ()


def test_everything_the_wrong_way_round():
    report = score_identification(["a", "b", "c"], {"b"}, {"a", "c"})
    assert (report.accuracy, report.precision, report.recall, report.f1) == (0.0, 0.0, 0.0, 0.0)


def test_all_clean_and_none_found_is_right_but_has_no_precision_or_recall():
    report = score_identification(["a", "b", "c"], set(), set())
    assert report.accuracy == 1.0
    assert (report.precision, report.recall, report.f1) == (None, None, None)


def test_all_clean_with_a_false_alarm():
    report = score_identification(["a", "b"], set(), {"b"})
    assert (report.accuracy, report.precision, report.recall, report.f1) == (0.5, 0.0, None, 0.0)
    assert report.false_alarms == ("b",)


def test_noisy_clients_and_none_found():
    report = score_identification(["a", "b"], {"b"}, set())
    assert (report.accuracy, report.precision, report.recall, report.f1) == (0.5, None, 0.0, 0.0)
    assert report.misses == ("b",)


def test_all_noisy_and_all_found():
    report = score_identification(["a", "b"], {"a", "b"}, {"a", "b"})
    assert (report.accuracy, report.precision, report.recall, report.f1) == (1.0, 1.0, 1.0, 1.0)


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


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no clients"):
        score_identification([], set(), set())
    with pytest.raises(ValueError, match="twice"):
        score_identification(["a", "a"], set(), set())
    with pytest.raises(ValueError, match="true_noisy names clients that do not exist: 'x'"):
        score_identification(["a"], {"x"}, set())
    with pytest.raises(ValueError, match="found_noisy names clients that do not exist: 'x', 'y'"):
        score_identification(["a"], set(), {"y", "x", "a"})
    with pytest.raises(ValueError, match="not_assessed"):
        score_identification(["a"], set(), set(), {"x"})
