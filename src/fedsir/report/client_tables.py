"""Clients as tiles and as rows of a table: worst first, and still readable where there are a thousand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsir.report.drawing import short_names
from fedsir.report.wording import called, is_known, plural

ORDER = {"noisy": 0, "not assessed": 1, "clean": 2}
MOST_TILES, MOST_ROWS, FIRST_ROWS = 60, 2000, 25
TILE_ROOM = 150.0  # two lines of a tile, as `width_of` measures


@dataclass(frozen=True)
class Cell:
    """A cell: its words, and the number that the column is sorted by (None: text, or not known)."""

    text: str
    number: float | None = None
    is_number: bool = True

    @property
    def value(self) -> str:
        """The number as the page's script reads it."""
        return "" if self.number is None or not is_known(self.number) else f"{self.number:.9g}"


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    name: str
    is_number: bool = True


@dataclass(frozen=True)
class Row:
    """A client in a table. `page` is the relative address of its own page; `reason` explains the verdict; or empty."""

    name: str
    verdict: str
    anchor: str
    cells: tuple[Cell, ...]
    page: str = ""
    reason: str = ""

    @property
    def order(self) -> int:
        """Where its verdict stands: noisy first."""
        return ORDER.get(self.verdict, 3)


@dataclass(frozen=True)
class ClientTable:
    """All clients, or as many as a page can hold; `columns` begin with the client and its verdict."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    left_out: str = ""
    limit: int = FIRST_ROWS

    @property
    def verdicts(self) -> list[str]:
        """The verdicts that occur, noisy first."""
        return sorted({row.verdict for row in self.rows}, key=lambda verdict: ORDER.get(verdict, 3))


@dataclass(frozen=True)
class Tile:
    """A client in the strip: its verdict and a few words."""

    name: str
    whole_name: str
    verdict: str
    words: str
    anchor: str


def tiles(rows: Sequence[Row], words: Sequence[str]) -> tuple[list[Tile], str]:
    """Return the first tiles of clients that are sorted worst first, and a sentence about those that are left out."""
    first = rows[:MOST_TILES]
    names = short_names([called(row.name) for row in first], TILE_ROOM)
    shown = [
        Tile(name, called(row.name), row.verdict, text, row.anchor)
        for row, name, text in zip(first, names, words[:MOST_TILES], strict=True)
    ]
    rest = rows[MOST_TILES:]
    if not rest:
        return shown, ""
    tally = [plural(n, verdict, verdict) for verdict in ORDER if (n := sum(row.verdict == verdict for row in rest))]
    return shown, f"And {plural(len(rest), 'more client')}: {', '.join(tally)}. The table has them all."


def client_table(caption: str, columns: Sequence[Column], rows: Sequence[Row], where: str) -> ClientTable:
    """Return a table of clients that are sorted worst first; `where` names the file with those that are left out."""
    left_out = ""
    if len(rows) > MOST_ROWS:
        left_out = f"The first {MOST_ROWS:,} of {len(rows):,} clients are here; {where} has the others."
    return ClientTable(caption, tuple(columns), tuple(rows[:MOST_ROWS]), left_out)
