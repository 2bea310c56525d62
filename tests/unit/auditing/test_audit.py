"""`fedsir.audit` on arrays: verdicts, samples, kinds of input, faults, and what it loads."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsir
from fedsir.auditing.folder import AuditFolder
from fedsir.errors import DataError

Make = Callable[..., Any]


def test_it_names_the_noisy_client_and_its_wrong_labels(sites: Make) -> None:
    data = sites()
    result = fedsir.audit(data.features, data.given, data.clients)
    clients, samples = result.clients, result.samples
    assert clients["client"][0] == "site 1" and clients["verdict"].tolist() == ["noisy"] + ["clean"] * 4
    is_wrong = data.given != data.true
    share = is_wrong[data.clients == "site 1"].mean()
    assert clients["noise_rate"][0] == pytest.approx(share, abs=0.05)
    assert clients["noise_rate_low"][0] < share < clients["noise_rate_high"][0]
    assert (samples["is_label_issue"] == is_wrong).mean() > 0.98
    found = samples["is_label_issue"] & is_wrong
    assert (samples["suggested_label"] == data.true)[found].mean() > 0.95
    assert samples["score"].min() >= 0 and samples["score"].max() <= 1
    assert samples["score"][is_wrong].mean() < 0.1 < 0.9 < samples["score"][~is_wrong].mean()
    assert (
        int(clients["suspicious"].sum()) == int(samples["is_label_issue"].sum()) == int(result.confusion["count"].sum())
    )
    assert str(result).startswith("1 of 5 clients looks noisy (site 1); ")


def test_verdicts_are_those_of_identify(sites: Make) -> None:
    data = sites(bad=(0, 3), seed=2)
    result = fedsir.audit(data.features, data.given, data.clients)
    found = fedsir.identify(data.features, data.given, data.clients)
    for row in result.clients.rows():
        assert row["verdict"] == found.verdict(row["client"])
        assert row["probability_noisy"] == pytest.approx(found.probability_noisy[row["client"]], abs=0.05)


def test_a_wrong_label_on_a_clean_client_is_found(sites: Make) -> None:
    data = sites(bad=())
    given = data.given.copy()
    given[7] = "cat" if given[7] != "cat" else "dog"
    result = fedsir.audit(data.features, given, data.clients)
    assert (result.clients["verdict"] == "clean").all()
    assert result.samples["is_label_issue"][7] and result.samples["rank"][7] == 1
    assert result.samples["suggested_label"][7] == data.given[7]


def test_nothing_suspicious_is_a_valid_result(sites: Make) -> None:
    data = sites(bad=())
    result = fedsir.audit(data.features, data.given, data.clients)
    assert result.confusion.n_rows == 0 and list(result.confusion) == ["client", "given", "suggested", "count"]
    assert str(result) == "None of 5 clients look noisy; 0 of 300 labels are suspect"
    assert len(result.to_frame("confusion")) == 0


def test_labels_stay_of_the_kind_that_was_given(sites: Make) -> None:
    data = sites()
    numbers = np.unique(data.given, return_inverse=True)[1]
    result = fedsir.audit(data.features, numbers, data.clients, ids=np.arange(1000, 1300))
    assert result.samples["suggested_label"].dtype == numbers.dtype
    assert result.samples["id"][0] == "1000"
    frame = result.to_frame()
    assert list(frame) == list(result.samples) and len(frame) == 300


def test_ranks_go_from_worst_to_best_within_each_client(sites: Make) -> None:
    data = sites()
    result = fedsir.audit(data.features, data.given, data.clients)
    mine = result.of_client("site 1")
    assert mine["rank"].tolist() == list(range(1, 61))
    assert (np.diff(mine["score"]) >= 0).all()
    with pytest.raises(DataError, match="no client 'site 9'"):
        result.of_client("site 9")


def test_a_class_that_nobody_else_has_is_not_judged(sites: Make) -> None:
    data = sites()
    given = data.given.copy()
    given[:10] = "unicorn"  # of site 0 alone
    result = fedsir.audit(data.features, given, data.clients)
    mine = result.samples.take(np.arange(10))
    assert set(mine["score"].tolist()) == {0.5} and not mine["is_label_issue"].any()
    assert sorted(mine["rank"].tolist()) == list(range(51, 61)), "they stand last"
    evidence = dict(zip(result.clients["client"], result.clients["evidence"], strict=True))
    assert evidence["site 0"] == "most of 60 samples judged by 4 other clients", "a small count cannot be computed"
    assert evidence["site 1"].startswith("all 60 samples")


def test_a_client_with_few_samples_is_not_assessed(sites: Make) -> None:
    data = sites()
    kept = (data.clients != "site 4") | (np.cumsum(data.clients == "site 4") <= 8)
    result = fedsir.audit(data.features[kept], data.given[kept], data.clients[kept])
    last = list(result.clients.rows())[-1]
    assert (last["client"], last["verdict"]) == ("site 4", "not assessed")
    assert "fewer than 20 samples" in last["reason"] and np.isnan(last["noise_rate"])
    assert "1 could not be assessed" in result.headline


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f, y, c: (f, y, np.full(len(c), "only")), "nobody to compare"),
        (lambda f, y, c: (f, np.full(len(y), "cat"), c), "labels: all are 'cat'"),
        (lambda f, y, c: (np.where(np.arange(len(f))[:, None] == 3, np.nan, f), y, c), "row 3 holds NaN"),
        (lambda f, y, c: (f[:-1], y, c), "give one for each"),
        (lambda f, y, c: (f, np.array([1, "1", *y[2:]], object), c), "2 different ones are called '1'"),
        (lambda f, y, c: (f, y, np.array([1, "1", *c[2:]], object)), "clients: 2 different ones are called '1'"),
        (lambda f, y, c: (f, ["a\x1b[2J", *y[1:]], c), "not readable text"),
        (lambda f, y, c: (f, [None, *y[1:]], c), "labels: row 0 is missing"),
    ],
)
def test_faults_are_named(sites: Make, change: Callable[..., Any], message: str) -> None:
    data = sites()
    with pytest.raises(DataError, match=message):
        fedsir.audit(*change(data.features, data.given.astype(object), data.clients.astype(object)))


def test_ids_are_unique_and_as_many_as_samples(sites: Make) -> None:
    data = sites()
    with pytest.raises(DataError, match="ids: 'x' names 300 samples"):
        fedsir.audit(data.features, data.given, data.clients, ids=["x"] * 300)
    with pytest.raises(DataError, match="ids have shape"):
        fedsir.audit(data.features, data.given, data.clients, ids=["x"])


def many(n_clients: int, n_classes: int, each: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return features, given labels, clients and true labels; half the labels of client 1 are wrong."""
    random = np.random.default_rng(0)
    true = random.permutation(np.arange(n_clients * each) % n_classes)
    features = (random.normal(size=(n_classes, 12))[true] * 20 + random.normal(size=(len(true), 12))).astype(np.float32)
    clients = np.repeat(np.arange(n_clients), each)
    is_wrong = (clients == 1) & (random.random(len(true)) < 0.5)
    return features, np.where(is_wrong, (true + 1) % n_classes, true), clients, true


@pytest.mark.slow
def test_a_thousand_clients(tmp_path: Path) -> None:
    features, given, clients, true = many(n_clients=1000, n_classes=3, each=20)
    result = fedsir.audit(features, given, clients)
    assert result.clients["client"][0] == 1 and (result.clients["verdict"] == "noisy").sum() == 1
    assert (result.samples["suggested_label"] == true).mean() > 0.99
    assert len(list(result.save(tmp_path / "audit").glob("clients/*/samples.csv"))) == 1000


def test_a_thousand_classes(tmp_path: Path) -> None:
    # Six samples of each class are too few to judge single labels by; clients are compared all the same.
    features, given, clients, _ = many(n_clients=3, n_classes=1000, each=3000)
    result = fedsir.audit(features, given, clients)
    assert result.clients["evidence"][0] == "how alike its classes are, compared with 2 other clients"
    assert np.isnan(result.clients["noise_rate"]).all() and not result.samples["is_label_issue"].any()
    assert len(AuditFolder(result.save(tmp_path / "audit")).class_names) == 1000


CHECK = """
import sys
{imports}
assert callable(fedsir.audit) and fedsir.audit.__name__ == "audit", fedsir.audit
import numpy as np
r = np.random.default_rng(0); y = np.tile([0, 1], 60)
fedsir.audit(r.normal(size=(120, 4)) + 5 * y[:, None], y, np.repeat([0, 1, 2], 40))
assert callable(fedsir.audit)
assert "torch" not in sys.modules
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import fedsir",
        "import fedsir; import fedsir.auditing.audit, fedsir.auditing.folder",
        "import fedsir.auditing.audit; import fedsir",
        "from fedsir import audit; import fedsir; import fedsir.auditing.result",
    ],
)
def test_the_name_is_the_function_and_torch_is_not_loaded(imports: str) -> None:
    done = subprocess.run([sys.executable, "-c", CHECK.format(imports=imports)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
