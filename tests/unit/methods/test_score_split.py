"""Two groups of numbers, and clients split by a score."""

import numpy as np
import pytest

from fedsir.methods.score_split import higher_group, split_by_score

TWO_GROUPS = np.array([1.0, 1.1, 0.9, 5.0, 5.2, 4.9, 5.1])


def test_the_higher_group_is_found() -> None:
    assert (higher_group(TWO_GROUPS) > 0.5).tolist() == [False, False, False, True, True, True, True]


def test_neither_order_nor_scale_matters() -> None:
    order = np.array([6, 2, 0, 4, 5, 1, 3])
    once = higher_group(TWO_GROUPS)
    assert higher_group(TWO_GROUPS[order]).tolist() == once[order].tolist()
    assert higher_group(1e-5 * TWO_GROUPS + 0.25) == pytest.approx(once, abs=1e-9)


@pytest.mark.parametrize("values", [[], [3.0], [2.0, 2.0, 2.0], [0.0, 0.0], [1.0, 1.0 + 1e-15]])
def test_nothing_to_tell_apart(values: list[float]) -> None:
    assert higher_group(np.array(values)).tolist() == [0.0] * len(values)


def test_two_values_are_two_groups() -> None:
    assert (higher_group(np.array([4.0, 1.0])) > 0.5).tolist() == [True, False]


def test_split_by_score() -> None:
    scores = dict(zip("abcdefg", TWO_GROUPS.tolist(), strict=True))
    split = split_by_score(scores, {"x": "too few samples"})
    assert split.clean == ("a", "b", "c")
    assert split.noisy == ("d", "e", "f", "g")
    assert split.not_assessed == {"x": "too few samples"}
    assert split.has_two_groups
    assert split.evidence is not None and split.evidence.separation > 10
    assert split.posterior_noisy["a"] < 0.01 < 0.99 < split.posterior_noisy["g"]


@pytest.mark.parametrize("scores", [{}, {"a": 1.0}, {"a": 1.0, "b": 1.0}])
def test_without_two_groups_nobody_is_accused(scores: dict[str, float]) -> None:
    split = split_by_score(scores, {})
    assert (split.clean, split.noisy, split.evidence, split.has_two_groups) == (tuple(scores), (), None, False)
