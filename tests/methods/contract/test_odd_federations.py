"""Odd clients and odd federations do no harm."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from contract_checks import check_unharmed
from fedsir.data.federation import FederatedData
from fedsir.data.source import Source

Runner = Callable[..., Any]
Deal = Callable[..., FederatedData]


def alternating(digits: Source, n: int, start: int, *, without: tuple[int, ...] = ()) -> list[int]:
    """Return n rows of the digits, from `start` on, in which all classes but `without` take turns."""
    by_class = [np.flatnonzero(digits.train_labels == c)[start : start + n] for c in range(10) if c not in without]
    return [int(by_class[i % len(by_class)][i // len(by_class)]) for i in range(n)]


def shifted(digits: Source, rows: list[int], share: float) -> list[int]:
    """Return the labels of these rows with a share of them moved to another class."""
    labels = digits.train_labels[rows].tolist()
    n_wrong = round(share * len(rows))
    return [(label + 1 + i % 9) % 10 if i < n_wrong else label for i, label in enumerate(labels)]


def clean_and_noisy(digits: Source) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Return rows of four clients with forty digits, and wrong labels for two of them."""
    rows = {f"k{i}": alternating(digits, 40, start=5 * i) for i in range(4)}
    return rows, {k: shifted(digits, rows[k], 0.8) for k in ("k1", "k3")}


def test_a_client_with_one_class(method: str, run_tiny: Runner, digits: Source, deal: Deal) -> None:
    rows, wrong = clean_and_noisy(digits)
    rows["sevens"] = np.flatnonzero(digits.train_labels == 7)[40:60].tolist()
    check_unharmed(run_tiny(method, federation=deal(rows, wrong)))


def test_a_client_with_one_sample(method: str, run_tiny: Runner, digits: Source, deal: Deal) -> None:
    rows, wrong = clean_and_noisy(digits)
    check_unharmed(run_tiny(method, federation=deal({"lonely": [1000], **rows}, wrong)))


def test_a_class_that_nobody_holds(method: str, run_tiny: Runner, digits: Source, deal: Deal) -> None:
    rows = {f"k{i}": alternating(digits, 36, start=5 * i, without=(4,)) for i in range(4)}
    labels = {k: digits.train_labels[rows[k]].tolist() for k in ("k1", "k3")}
    swapped = {k: [{0: 1, 1: 0, 2: 3, 3: 2, 5: 6, 6: 5}.get(c, c) for c in own] for k, own in labels.items()}
    data = deal(rows, swapped)
    assert 4 not in data.given_labels
    run = run_tiny(method, federation=data)
    check_unharmed(run)
    with np.load(run.folder / "labels.npz") as labels_file:
        assert 4 not in labels_file["corrected"]


@pytest.mark.parametrize("who_is_noisy", ["none", "all"])
def test_everybody_alike(method: str, who_is_noisy: str, run_tiny: Runner) -> None:
    check_unharmed(run_tiny(method, data={"noisy_clients": who_is_noisy}))


def test_one_client(method: str, run_tiny: Runner) -> None:
    check_unharmed(run_tiny(method, data={"n_clients": 1, "noisy_clients": "none", "n_train": 60}))
