"""Labels repaired, harmed and left alone."""

import json

import numpy as np
import pytest

from fedsir.evaluate.relabeling import RelabelReport, overall, score_relabeling


def labels(*classes: int) -> np.ndarray:
    return np.array(classes, dtype=np.int64)


@pytest.mark.parametrize(
    ("true", "given", "corrected", "counts", "rates"),
    [
        # wrong and repaired; wrong and left; right and harmed
        ((0, 1, 2), (1, 2, 2), (0, 2, 0), (2, 2, 1, 1), (2 / 3, 2 / 3, 1 / 2, 1 / 2)),
        # one wrong label changed to another wrong one: neither repaired nor harmed
        ((0, 0), (1, 1), (2, 0), (2, 2, 1, 0), (1.0, 0.5, 0.5, 0.5)),
        ((0, 1, 2), (1, 1, 1), (0, 1, 2), (2, 2, 2, 0), (2 / 3, 0.0, 1.0, 1.0)),
        # nothing changed: no precision; all clean: no recall; no samples: no rates
        ((0, 1), (1, 1), (1, 1), (0, 1, 0, 0), (0.5, 0.5, None, 0.0)),
        ((0, 1, 2, 2), (0, 1, 2, 2), (0, 1, 2, 0), (1, 0, 0, 1), (0.0, 0.25, 0.0, None)),
        ((), (), (), (0, 0, 0, 0), (None, None, None, None)),
    ],
)
def test_counts_and_rates_by_hand(true, given, corrected, counts, rates):
    report = score_relabeling(labels(*true), labels(*given), labels(*corrected))
    assert report == RelabelReport(len(true), *counts)
    assert (report.noise_before, report.noise_after, report.precision, report.recall) == tuple(
        rate if rate is None else pytest.approx(rate) for rate in rates
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
REPORTS = {client: score_relabeling(TRUE[client], GIVEN[client], CORRECTED[client]) for client in "bac"}
BLIND = {client: score_relabeling(None, GIVEN[client], CORRECTED[client]) for client in "bac"}


def test_overall_pools_samples_not_clients():
    noisy = overall(REPORTS, {"a", "b"})  # c is clean and left out
    # 3 of 4 wrong before, 2 of 4 after; the mean over the two clients would be (2/3 + 1)/2 and (2/3 + 0)/2.
    assert (noisy.n, noisy.noise_before, noisy.noise_after) == (4, 0.75, 0.5)
    assert (noisy.precision, noisy.recall, noisy.n_harmed) == (1.0, pytest.approx(1 / 3), 0)
    pooled = score_relabeling(*(np.concatenate([part[k] for k in "abc"]) for part in (TRUE, GIVEN, CORRECTED)))
    assert overall(REPORTS, REPORTS) == pooled
    assert overall(REPORTS, ["a", "a"]) == REPORTS["a"]  # a client named twice counts once
    assert overall(REPORTS, ()) == RelabelReport(0, 0, 0, 0, 0)


def test_overall_is_unknown_when_one_chosen_client_is():
    assert overall(BLIND, ["a", "c"]) == RelabelReport(3, 2, None, None, None)
    assert overall({**REPORTS, "a": BLIND["a"]}, ["a", "b"]).noise_after is None
