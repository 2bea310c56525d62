"""The few numbers at the top of a page."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """A key figure: its name, its value, and a line of small print."""

    name: str
    value: str
    note: str = ""
