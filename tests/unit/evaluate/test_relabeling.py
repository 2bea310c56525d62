"""Labels repaired, harmed and left alone."""

import json

import numpy as np
import pytest

from fedsir.evaluate.relabeling import RelabelReport, overall, score_relabeling, score_relabeling_by_client


def labels(*classes: int) -> np.ndarray:
    return np.array(classes, dtype=np.int64)


def test_three_samples_by_hand():
    # Wrong and repaired; wrong and left; right and harmed.
    report = score_relabeling(labels(0, 1, 2), labels(1, 2, 2), labels(0, 2, 0))
    assert (report.n, report.n_changed, report.n_repaired, report.n_harmed) == (3, 2, 1, 1)
    assert report.noise_before == pytest.approx(2 / 3)
    assert report.noise_after == pytest.approx(2 / 3)
    assert report.precision == pytest.approx(1 / 2)
    assert report.recall == pytest.approx(1 / 2)


def test_a_wrong_label_changed_to_another_wrong_one_is_neither_repaired_nor_harmed():
    report = score_relabeling(labels(0, 0), labels(1, 1), labels(2, 0))
    assert (report.n_changed, report.n_repaired, report.n_harmed) == (2, 1, 0)
    assert (report.noise_before, report.noise_after, report.precision, report.recall) == (1.0, 0.5, 0.5, 0.5)


def test_everything_repaired():
    report = score_relabeling(labels(0, 1, 2), labels(1, 1, 1), labels(0, 1, 2))
    assert report.noise_before == pytest.approx(2 / 3)
    assert (report.noise_after, report.precision, report.recall, report.n_harmed) == (0.0, 1.0, 1.0, 0)


def test_nothing_changed_has_no_precision():
    report = score_relabeling(labels(0, 1), labels(1, 1), labels(1, 1))
    assert (report.n_changed, report.precision, report.recall) == (0, None, 0.0)
    assert (report.noise_before, report.noise_after) == (0.5, 0.5)


def test_all_clean_has_no_recall():
    report = score_relabeling(labels(0, 1, 2, 2), labels(0, 1, 2, 2), labels(0, 1, 2, 0))
    assert (report.noise_before, report.noise_after, report.n_harmed) == (0.0, 0.25, 1)
    assert (report.precision, report.recall) == (0.0, None)


def test_one_class_untouched():
    report = score_relabeling(labels(0, 0), labels(0, 0), labels(0, 0))
    assert (report.noise_before, report.noise_after, report.precision, report.recall) == (
        0.0,
        0.0,
        None,
        None,
    )


def test_noise_after_is_counted_like_it_is_derived():
    rng = np.random.default_rng(0)
    for _ in range(50):
        true, given, corrected = rng.integers(3, size=(3, 20))
        report = score_relabeling(true, given, corrected)
        changed = corrected != given
        assert report.noise_after == np.mean(corrected != true)
        assert report.n_repaired == np.count_nonzero(corrected[changed] == true[changed])


def test_without_truth_only_what_needs_none_is_given():
    report = score_relabeling(None, labels(1, 2, 2), labels(0, 2, 0))
    assert report.as_dict() == {
        "n": 3,
        "n_changed": 2,
        "n_wrong_before": None,
        "n_repaired": None,
        "n_harmed": None,
        "n_wrong_after": None,
        "noise_before": None,
        "noise_after": None,
        "precision": None,
        "recall": None,
    }


def test_report_is_json_ready():
    written = score_relabeling(labels(0, 1, 2, 0), labels(1, 2, 2, 0), labels(0, 2, 0, 0)).as_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written == {
        "n": 4,
        "n_changed": 2,
        "n_wrong_before": 2,
        "n_repaired": 1,
        "n_harmed": 1,
        "n_wrong_after": 2,
        "noise_before": 0.5,
        "noise_after": 0.5,
        "precision": 0.5,
        "recall": 0.5,
    }


TRUE = {"b": labels(0, 1, 2), "a": labels(0), "c": labels(1, 1)}
GIVEN = {"b": labels(1, 2, 2), "a": labels(1), "c": labels(1, 1)}
CORRECTED = {"b": labels(1, 2, 2), "a": labels(0), "c": labels(1, 0)}


def test_one_report_per_client_in_the_given_order():
    reports = score_relabeling_by_client(TRUE, GIVEN, CORRECTED)
    assert list(reports) == ["b", "a", "c"]
    assert reports["b"] == score_relabeling(TRUE["b"], GIVEN["b"], CORRECTED["b"])
    assert reports["a"] == RelabelReport(n=1, n_changed=1, n_wrong_before=1, n_repaired=1, n_harmed=0)


def test_overall_pools_samples_not_clients():
    reports = score_relabeling_by_client(TRUE, GIVEN, CORRECTED)
    noisy = overall(reports, {"a", "b"})  # c is clean and left out
    # 3 of 4 wrong before, 2 of 4 after; the mean over the two clients would be (2/3 + 1)/2 and (2/3 + 0)/2.
    assert (noisy.n, noisy.noise_before, noisy.noise_after) == (4, 0.75, 0.5)
    assert (noisy.precision, noisy.recall, noisy.n_harmed) == (1.0, pytest.approx(1 / 3), 0)
    everybody = overall(reports, reports)
    pooled = score_relabeling(*(np.concatenate([part[k] for k in "abc"]) for part in (TRUE, GIVEN, CORRECTED)))
    assert everybody == pooled


def test_overall_of_nobody_has_no_rates():
    nobody = overall(score_relabeling_by_client(TRUE, GIVEN, CORRECTED), set())
    assert (nobody.n, nobody.n_changed, nobody.n_harmed) == (0, 0, 0)
    assert (nobody.noise_before, nobody.noise_after, nobody.precision, nobody.recall) == (
        None,
        None,
        None,
        None,
    )


def test_overall_without_truth():
    blind = overall(score_relabeling_by_client(None, GIVEN, CORRECTED), ["a", "c"])
    assert (blind.n, blind.n_changed, blind.noise_before, blind.n_harmed) == (3, 2, None, None)


def test_overall_is_unknown_when_one_chosen_client_is():
    known = score_relabeling(labels(0), labels(1), labels(0))
    blind = score_relabeling(None, labels(0, 1), labels(0, 0))
    mixed = overall({"known": known, "blind": blind}, ["known", "blind"])
    assert (mixed.n, mixed.n_changed, mixed.n_wrong_before, mixed.noise_after) == (3, 2, None, None)


def test_a_client_named_twice_counts_once():
    reports = score_relabeling_by_client(TRUE, GIVEN, CORRECTED)
    assert overall(reports, ["a", "a"]) == reports["a"]


def test_a_client_without_samples_has_a_report_without_rates():
    nothing = {"a": labels(), "b": labels(0)}
    reports = score_relabeling_by_client(nothing, nothing, nothing)
    assert (reports["a"].n, reports["a"].noise_before, reports["a"].recall) == (0, None, None)
    assert overall(reports, reports).noise_before == 0.0


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="no labels"):
        score_relabeling(labels(), labels(), labels())
    with pytest.raises(ValueError, match=r"given \(2,\), corrected \(1,\)"):
        score_relabeling(None, labels(0, 1), labels(0))
    with pytest.raises(ValueError, match=r"true \(1,\)"):
        score_relabeling(labels(0), labels(0, 1), labels(0, 1))
    with pytest.raises(ValueError, match="no clients"):
        score_relabeling_by_client(None, {}, {})
    with pytest.raises(ValueError, match="corrected and the given labels do not name the same clients: 'b'"):
        score_relabeling_by_client(None, {"a": labels(0)}, {"a": labels(0), "b": labels(0)})
    with pytest.raises(ValueError, match="true and the given labels do not name the same clients: 'a'"):
        score_relabeling_by_client({}, {"a": labels(0)}, {"a": labels(0)})
    with pytest.raises(ValueError, match="Client 'a': Labels must be"):
        score_relabeling_by_client(None, {"a": labels(0)}, {"a": labels(0, 1)})
    with pytest.raises(ValueError, match="'x'"):
        overall(score_relabeling_by_client(TRUE, GIVEN, CORRECTED), ["a", "x"])
