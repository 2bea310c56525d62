"""Clients split by their mean loss per class."""

import math

import numpy as np
import pytest

from fedsir.methods.loss_split import comparable_losses, most_frequent, split_by_losses

NAN = math.nan


def test_classes_are_scaled_over_the_clients_and_absent_ones_count_as_clean() -> None:
    losses = np.array([[1.0, NAN], [3.0, 2.0], [2.0, 4.0]])
    # Second class: the first client lacks it and gets the lowest loss, 2.
    assert comparable_losses(losses).tolist() == [[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]]


def test_classes_that_nobody_has_or_all_have_alike_tell_nothing() -> None:
    losses = np.array([[NAN, 0.7, 1.0], [NAN, 0.7, 2.0]])
    assert comparable_losses(losses).tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


def test_one_holder_of_a_class_looks_clean_in_it() -> None:
    assert comparable_losses(np.array([[9.0, 1.0], [NAN, 2.0]])).tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_the_most_frequent_set_wins_and_the_first_of_two() -> None:
    first, second, third = [True, False, False], [False, True, False], [False, False, True]
    winner, count = most_frequent(np.array([third, second, first, second]))
    assert (winner.tolist(), count) == (second, 2)
    winner, count = most_frequent(np.array([third, second, second, third]))
    assert (winner.tolist(), count) == (third, 2)


def ten_clients(n_classes: int = 10) -> dict[str, list[float]]:
    """Return losses of three clients around 0.5 and seven around 2."""
    random = np.random.default_rng(3)
    level = {f"k{i}": 0.5 if i in (2, 5, 6) else 2.0 for i in range(10)}
    return {k: (centre + 0.1 * random.standard_normal(n_classes)).tolist() for k, centre in level.items()}


@pytest.mark.parametrize("n_classes", [2, 10, 100])
def test_three_low_and_seven_high_rows_are_told_apart(n_classes: int) -> None:
    told = ten_clients(n_classes)
    split, n_agreeing = split_by_losses(told, {"late": "not seen yet"})
    assert split.not_assessed == {"late": "not seen yet"}
    assert split.clean == ("k2", "k5", "k6")
    assert split.noisy == ("k0", "k1", "k3", "k4", "k7", "k8", "k9")
    assert n_agreeing == 9
    assert split.posterior_noisy == {k: float(k in split.noisy) for k in told}
    assert split.statistics == {k: tuple(losses) for k, losses in told.items()}
    assert split.has_two_groups and split.evidence is not None and split.evidence.is_convincing


def test_a_missing_class_does_not_change_the_verdict() -> None:
    told = ten_clients()
    told["k2"][0] = told["k8"][3] = told["k8"][4] = NAN
    split, _ = split_by_losses(told)
    assert split.clean == ("k2", "k5", "k6")
    assert math.isnan(split.statistics["k8"][3])


def test_the_order_of_the_clients_does_not_matter() -> None:
    told = ten_clients()
    there, back = split_by_losses(told)[0], split_by_losses(dict(reversed(told.items())))[0]
    assert set(there.noisy) == set(back.noisy)
    assert there.posterior_noisy == back.posterior_noisy
    assert there.evidence == back.evidence


@pytest.mark.parametrize(
    "told", [{}, {"a": [1.0, 2.0]}, {"a": [1.0, NAN], "b": [1.0, NAN]}, {"a": [1.0, NAN], "b": [NAN, 1.0]}]
)
def test_where_nothing_differs_nobody_is_accused(told: dict[str, list[float]]) -> None:
    split, n_agreeing = split_by_losses(told)
    assert split.clean == tuple(told)
    assert (split.noisy, split.evidence, split.has_two_groups, n_agreeing) == ((), None, False, 9)


def test_two_clients_are_two_groups() -> None:
    split, _ = split_by_losses({"a": [2.0, 2.0], "b": [1.0, 1.5]})
    assert (split.clean, split.noisy) == (("b",), ("a",))


def test_clients_of_one_group_are_split_all_the_same_but_the_evidence_says_so() -> None:
    random = np.random.default_rng(0)
    split, _ = split_by_losses({f"k{i}": random.uniform(1.0, 1.1, 10).tolist() for i in range(10)})
    assert split.noisy
    assert split.evidence is not None and not split.evidence.is_convincing
