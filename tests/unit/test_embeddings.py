"""`fedsir.identify` and `fedsir.relabel` on arrays: verdicts, kinds of input, scores, faults."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import fedsir
from fedsir.errors import DataError, FedsirError
from fedsir.stages.pairwise import NOTHING_SHARED
from fedsir.stages.split import PairEvidence

N_CLASSES, N_CLIENTS, EACH, D = 6, 8, 120, 24
BAD = (2, 5)


def federation(
    noise_rate: float = 0.5, bad: tuple[int, ...] = BAD, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features (n, d), given labels, client numbers and true labels (n,) of clients, some of them noisy."""
    rng = np.random.default_rng(seed)
    centres = np.abs(rng.normal(size=(N_CLASSES, D))) * 2
    true = rng.integers(0, N_CLASSES, N_CLIENTS * EACH)
    clients = np.repeat(np.arange(N_CLIENTS), EACH)
    features = np.abs(centres[true] + rng.normal(size=(len(true), D)) * 0.6).astype(np.float32)
    is_wrong = np.isin(clients, bad) & (rng.random(len(true)) < noise_rate)
    labels = np.where(is_wrong, (true + rng.integers(1, N_CLASSES, len(true))) % N_CLASSES, true)
    return features, labels, clients, true


def test_it_names_the_noisy_clients_and_repairs_their_labels() -> None:
    features, labels, clients, true = federation()
    found = fedsir.identify(features, labels, clients)
    fixed = fedsir.relabel(features, labels, clients, found)
    assert (found.noisy, found.two_groups) == (BAD, "found")
    assert set(found.clean) == set(range(N_CLIENTS)) - set(BAD) and found.not_assessed == {}
    shares = {k: (labels != true)[clients == k].mean() for k in BAD}
    assert {k: found.noise_rate[k][0] for k in BAD} == pytest.approx(shares, abs=0.06)
    assert fixed.noise_rate == pytest.approx(shares, abs=0.06)
    assert str(found) == "2 of 8 clients look noisy: 2 ({:.0%} wrong), 5 ({:.0%} wrong)".format(
        *(found.noise_rate[k][0] for k in BAD)
    )
    on_noisy = np.isin(clients, BAD)
    assert (labels != true)[on_noisy].mean() > 0.4
    assert (fixed.labels != true)[on_noisy].mean() < 0.05
    assert (fixed.labels == labels)[~on_noisy].all(), "clean clients keep their labels"
    assert fixed.score.min() >= 0 and fixed.score.max() <= 1
    assert fixed.score[labels != true].mean() < 0.5 < fixed.score[labels == true].mean()


def test_nobody_is_accused_where_nobody_is_noisy() -> None:
    features, labels, clients, _ = federation(noise_rate=0.0)
    found = fedsir.identify(features, labels, clients)
    assert (found.noisy, found.two_groups) == ((), "not found")
    assert max(found.probability_noisy.values()) < 0.1
    assert max(rate for rate, _ in found.noise_rate.values()) < 0.02
    fixed = fedsir.relabel(features, labels, clients, found)
    assert not fixed.is_changed.any() and not fixed.is_undecided.any()
    forced = fedsir.identify(features, labels, clients, split="always")
    assert forced.noisy and forced.two_groups == "asked for"
    assert str(forced).endswith("(two groups were asked for, not found)")


def test_a_client_of_one_class_is_not_assessed_and_keeps_its_labels() -> None:
    features, labels, clients, _ = federation()
    clients = np.where((clients == 0) & (labels != 3), 1, clients)
    found = fedsir.identify(features, labels, clients, split="auto")
    assert found.not_assessed == {0: "only 1 usable class(es); two are needed"}
    assert found.verdict(0) == "not assessed" and 0 not in found.clean + found.noisy
    assert not fedsir.relabel(features, labels, clients, found).is_changed[clients == 0].any()
    # Its labels can be judged all the same, by what that class looks like elsewhere; below 20 samples nobody tries.
    assert fedsir.identify(features, labels, clients).noise_rate[0][0] < 0.1
    few = (clients != 0) | (np.cumsum(clients == 0) <= 15)
    assert list(fedsir.identify(features[few], labels[few], clients[few]).not_assessed) == [0]


def as_words(values: np.ndarray) -> np.ndarray:
    return np.array([f"no. {value}" for value in values])


@pytest.mark.parametrize(
    "kind",
    [
        as_words,
        lambda values: values.tolist(),
        lambda values: torch.from_numpy(values),
        lambda values: pd.Series(as_words(values)),
        lambda values: pd.Categorical(as_words(values)),
        lambda values: np.array([f"no. {value}".encode() for value in values]),
        lambda values: [(int(value), "part") for value in values],
    ],
    ids=["text", "list", "tensor", "column", "categories", "bytes", "tuples"],
)
def test_names_of_any_kind_give_the_same_verdict(kind: Callable[[np.ndarray], Any]) -> None:
    features, labels, clients, _ = federation()
    plain = fedsir.relabel(features, labels, clients)
    found = fedsir.identify(pd.DataFrame(features), kind(labels), kind(clients))
    fixed = fedsir.relabel(torch.from_numpy(features), kind(labels), kind(clients), found)
    assert list(found.noisy) == [entry.item() if hasattr(entry, "item") else entry for entry in kind(np.array(BAD))]
    assert np.array_equal(fixed.is_changed, plain.is_changed)
    assert list(fixed.labels) == [
        entry.item() if hasattr(entry, "item") else entry for entry in kind(np.asarray(plain.labels))
    ]


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_the_samples_does_not_matter(random: Any) -> None:
    features, labels, clients, _ = federation()
    order = np.array(random.sample(range(len(labels)), len(labels)))
    before = fedsir.relabel(features, labels, clients)
    after = fedsir.relabel(features[order], labels[order], clients[order])
    assert np.array_equal(before.labels[order], after.labels)
    np.testing.assert_allclose(before.score[order], after.score, atol=1e-6)


def test_frames_have_a_row_per_client_and_per_sample() -> None:
    features, labels, clients, _ = federation()
    found = fedsir.identify(features, labels, clients)
    frame = found.to_frame().set_index("client")
    assert frame.loc[2, ["verdict", "samples", "classes"]].tolist() == ["noisy", EACH, N_CLASSES]
    assert frame.loc[2, "mean"] == found.statistics[2][0] > frame.loc[0, "mean"]
    fixed = fedsir.relabel(features, labels, clients, found)
    samples = fixed.to_frame()
    assert len(samples) == len(labels) and samples["is_changed"].sum() == fixed.is_changed.sum()
    assert samples["corrected"].tolist() == fixed.labels.tolist()


def test_clients_may_be_compared_by_pairs_of_classes() -> None:
    kept = np.isin(federation()[1], (0, 1, 2, 3)) | (federation()[2] != 0)  # client 0 has four classes of six
    features, labels, clients, _ = (part[kept] for part in federation())
    found = fedsir.identify(features, labels, clients, split="pairwise")
    assert (found.noisy, found.two_groups, found.note) == (BAD, "found", "")
    assert isinstance(found.evidence, PairEvidence) and found.evidence.is_convincing
    frame = found.to_frame().set_index("client")
    assert (frame["effect"] > 4 * frame["effect_error"]).tolist() == [k in BAD for k in range(N_CLIENTS)]
    assert frame.loc[2, ["effect", "effect_error"]].tolist() == list(found.effects[2])
    fixed = fedsir.relabel(features, labels, clients, found)
    assert set(clients[fixed.is_changed]) == set(BAD)


def test_sites_without_a_common_pair_are_compared_by_two_numbers_and_the_verdict_says_so() -> None:
    features, labels, clients, _ = federation(noise_rate=0.0)
    kept = (labels // 2 == clients) & (clients < 3)  # each of three sites has two classes of its own
    found = fedsir.identify(features[kept], labels[kept], clients[kept], split="pairwise")
    assert found.effects == {} and found.clean == (0, 1, 2)
    assert str(found) == f"0 of 3 clients look noisy; {NOTHING_SHARED}"


def test_without_pandas_a_frame_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fedsir.identify(*federation()[:3])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(FedsirError, match="pip install pandas"):
        found.to_frame()


def test_a_class_that_only_noisy_clients_have_is_repaired_too() -> None:
    features, labels, clients, true = federation()
    kept = (true != 4) | np.isin(clients, BAD)
    features, labels, clients, true = features[kept], labels[kept], clients[kept], true[kept]
    fixed = fedsir.relabel(features, labels, clients, found=BAD)
    is_of_it = true == 4
    assert (labels != true)[is_of_it].mean() > 0.4
    assert (fixed.labels != true)[is_of_it].mean() < 0.05
    assert (fixed.labels[~is_of_it] == 4).mean() < 0.01


def test_a_score_is_half_for_a_class_of_which_there_are_too_few() -> None:
    features, labels, clients, _ = federation()
    few = np.isin(clients, BAD) & (np.cumsum(np.isin(clients, BAD) & (labels == 4)) <= 19)
    labels = np.where((labels == 4) & ~few, 3, labels)
    fixed = fedsir.relabel(features, labels, clients, found=BAD)
    assert (labels == 4).sum() == 19
    assert set(fixed.score[labels == 4]) == {0.5}
    assert not (fixed.labels[fixed.is_changed] == 4).any()


@pytest.mark.parametrize("rule", ["direction", "residual", "agreement"])
def test_the_papers_rules_are_there_too(rule: Any) -> None:
    features, labels, clients, true = federation()
    fixed = fedsir.relabel(features, labels, clients, found=BAD, rule=rule)
    assert fixed.rule == rule and fixed.noise_rate == {}
    assert (fixed.labels == labels)[~np.isin(clients, BAD)].all()
    assert fixed.score[labels != true].mean() < fixed.score[labels == true].mean()


@pytest.mark.parametrize("factor", [1e300, 1e-300, 1.0])
def test_the_scale_of_features_does_not_matter(factor: float) -> None:
    features, labels, clients, _ = federation()
    fixed = fedsir.relabel(features.astype(np.float64) * factor, labels, clients)
    assert np.array_equal(fixed.labels, fedsir.relabel(features, labels, clients).labels)
    half = torch.from_numpy(features).bfloat16()
    assert fedsir.identify(half, labels, clients).noisy == BAD


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "no rows": (lambda a: {k: v[:0] for k, v in a.items()}, "no rows"),
    "no columns": (lambda a: a | {"features": a["features"][:, :0]}, "no columns"),
    "uneven rows": (lambda a: a | {"features": [[1], [2, 3]]}, "features cannot be read as an array"),
    "one axis": (lambda a: a | {"features": a["features"][:, 0]}, "expected \\(samples, features\\)"),
    "text as features": (lambda a: a | {"features": a["features"].astype(str)}, "must be numbers"),
    "one client": (lambda a: a | {"clients": ["a"] * len(a["labels"])}, "all samples are of 'a'"),
    "one class": (lambda a: a | {"labels": a["labels"] * 0}, "all are 0"),
    "a masked array": (lambda a: a | {"features": np.ma.masked_greater(a["features"], 2)}, "masked"),
}


@pytest.mark.parametrize(("change", "message"), FAULTS.values(), ids=FAULTS)
def test_bad_arrays_are_one_clear_line(change: Callable[[dict[str, Any]], dict[str, Any]], message: str) -> None:
    features, labels, clients, _ = federation()
    arrays = change({"features": features, "labels": labels, "clients": clients})
    for function in (fedsir.identify, fedsir.relabel):
        with pytest.raises(ValueError, match=message) as caught:
            function(**arrays)
        assert isinstance(caught.value, DataError) and "\n" not in str(caught.value)


def test_nan_is_named_by_its_row() -> None:
    features, labels, clients, _ = federation()
    features[7, 3] = np.nan
    with pytest.raises(DataError, match="row 7 holds NaN"):
        fedsir.identify(features, labels, clients)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (("x",), "no client 'x'"),
        (range(N_CLIENTS), "no client is clean"),
        (7, "found must be"),
        (fedsir.identify(*(array[:-EACH] for array in federation()[:3])), "nothing of client 7"),
    ],
    ids=["unknown", "all", "a number", "of fewer clients"],
)
def test_noisy_clients_that_cannot_be(found: Any, message: str) -> None:
    features, labels, clients, _ = federation()
    with pytest.raises(DataError, match=message):
        fedsir.relabel(features, labels, clients, found)


def test_words_that_are_no_choice_are_refused() -> None:
    features, labels, clients, _ = federation()
    with pytest.raises(DataError, match="split must be"):
        fedsir.identify(features, labels, clients, split="perhaps")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="rule must be"):
        fedsir.relabel(features, labels, clients, rule="vote")  # type: ignore[arg-type]


def test_none_of_it_loads_torch() -> None:
    code = """
import sys, numpy as np, fedsir
rng = np.random.default_rng(0)
features, labels, clients = rng.random((200, 8)), rng.integers(0, 4, 200), rng.integers(0, 5, 200)
fedsir.relabel(features, labels, clients, fedsir.identify(features, labels, clients, split="always"))
print("torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
