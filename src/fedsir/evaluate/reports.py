"""What all evaluation reports share: a plain, JSON-ready form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass


@dataclass(frozen=True)
class Report:
    """Base of the frozen report dataclasses."""

    def as_dict(self) -> dict[str, object]:
        """Return the fields as JSON-ready values: tuples become lists, what is undefined is None."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def ratio(part: int, whole: int) -> float | None:
    """Return ``part / whole``, or None where it is undefined (0/0): JSON has no NaN."""
    return part / whole if whole else None
