"""Conditions for `fedsir audit apply --accept`: what can be said, and that nothing else can."""

import numpy as np
import pytest

from fedsir.auditing.condition import parse_condition
from fedsir.auditing.table import Table
from fedsir.errors import ConfigError

SAMPLES = Table(
    {
        "score": np.array([0.1, 0.2, 0.3, 0.9]),
        "suggested_probability": np.array([0.9, 0.7, 0.5, 0.1]),
        "rank": np.array([1, 2, 3, 4]),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("score<0.2", [True, False, False, False]),
        (" score <= .2 ", [True, True, False, False]),
        ("score>0.25 and rank<4", [False, False, True, False]),
        ("suggested_probability>=0.7 and score<1 and rank>1", [False, True, False, False]),
    ],
)
def test_conditions_hold_where_they_say(text: str, expected: list[bool]) -> None:
    assert parse_condition(text).holds(SAMPLES).tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        *("", "score", "score<", "score<x", "score=0.2", "score<0.2 or rank<3", "score<0.2 and", "0.2>score"),
        *("__import__('os').system('true')<1", "score<0.2; rank<1", "score<1e9", "score<-1", "score<0.2 AND rank<3"),
    ],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a condition.*'score<0.2 and rank<=100'"):
        parse_condition(text)


def test_unknown_columns_are_named() -> None:
    with pytest.raises(ConfigError, match=r"no 'scroe' to compare.*Did you mean 'score'"):
        parse_condition("scroe<0.2")
