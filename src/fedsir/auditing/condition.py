"""Conditions such as ``score<0.2 and rank<=100``: a tiny language of comparisons, nothing of it is ever executed."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.table import Table
from fedsir.errors import ConfigError, did_you_mean

COLUMNS = ("score", "suggested_probability", "rank")
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
TERM = re.compile(r"\s*(\w+)\s*(<=|>=|<|>)\s*([0-9]*\.?[0-9]+)\s*")


@dataclass(frozen=True)
class Condition:
    """Comparisons that must all hold; ``text`` is what was typed."""

    text: str
    terms: tuple[tuple[str, str, float], ...]

    def holds(self, samples: Table) -> NDArray[np.bool_]:
        """Return where it holds, (n,)."""
        found = np.ones(samples.n_rows, bool)
        for column, sign, limit in self.terms:
            found &= OPERATORS[sign](samples[column], limit)
        return found


def parse_condition(text: str) -> Condition:
    """Return what a condition says; one that cannot be read is an error that says what can."""
    terms = []
    for part in re.split(r"\band\b", text):
        match = TERM.fullmatch(part)
        if match is None:
            raise ConfigError(
                f"{text!r} is not a condition: compare {', '.join(COLUMNS)} with a number by <, <=, > or >=, joined by "
                "'and', as in 'score<0.2 and rank<=100'"
            )
        column, sign, limit = match.groups()
        if column not in COLUMNS:
            known = f"known: {', '.join(COLUMNS)}.{did_you_mean(column, COLUMNS)}"
            raise ConfigError(f"{text!r}: there is no {column!r} to compare; {known}")
        terms.append((column, sign, float(limit)))
    return Condition(text, tuple(terms))
