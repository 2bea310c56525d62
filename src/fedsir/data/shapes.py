"""Shapes as part of a type: `Annotated[Array, Shape("classes", "features")]`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["float", "int", "bool"]


@dataclass(frozen=True, init=False)
class Shape:
    """What an array must look like: a size or the name of a size for each axis, and what its entries are.

    Whoever checks knows some sizes by name ("classes", "features"); any other name stands for one size throughout.
    """

    axes: tuple[str | int, ...]
    kind: Kind
    has_gaps: bool  # whether NaN may stand for an entry that does not exist

    def __init__(self, *axes: str | int, kind: Kind = "float", has_gaps: bool = False) -> None:
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "has_gaps", has_gaps)

    def __str__(self) -> str:
        return " × ".join(map(str, self.axes)) or "one number"
