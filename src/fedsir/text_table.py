"""The one way in which rows of text become a table: on a screen, in Markdown, in LaTeX."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.cells import cell_len, chop_cells

from fedsir.printable import printable

Row = Sequence[str]
SHORTEST = 12  # columns that a shortened name keeps


def text_table(
    header: Row, rows: Sequence[Row], *, width: int | None = None, left: Collection[int] = (0,)
) -> list[str]:
    """Return the lines of a table, the header first.

    Only the first column, which holds names, is ever shortened. A number is shown whole even if the line is then wider
    than the screen.

    Parameters
    ----------
    header : (n_columns,); empty for a table without one
    width : columns of the screen; None where the lines may have any length
    left : columns that are flush left; the others are flush right
    """
    table = [[printable(cell) for cell in row] for row in ([header] if header else []) + list(rows)]
    if not table:
        return []
    widths, gap = _widths(table), 2
    if width is not None and _total(widths, gap) > width:
        gap = 1
        room = width - _total([0, *widths[1:]], gap)
        names = shortened_names([row[0] for row in table], max(room, SHORTEST))
        table = [[name, *row[1:]] for name, row in zip(names, table, strict=True)]
        widths = _widths(table)
    return [
        (" " * gap)
        .join(_padded(cell, room, is_left=i in left) for i, (cell, room) in enumerate(zip(row, widths, strict=True)))
        .rstrip()
        for row in table
    ]


def _widths(table: Sequence[Row]) -> list[int]:
    return [max(map(cell_len, column)) for column in zip(*table, strict=True)]


def _total(widths: Sequence[int], gap: int) -> int:
    return sum(widths) + gap * (len(widths) - 1)


def _padded(cell: str, room: int, *, is_left: bool) -> str:
    blanks = " " * (room - cell_len(cell))
    return cell + blanks if is_left else blanks + cell


def shortened(name: str, room: int, end: float = 0.5) -> str:
    """Return the name with a part left out if it is too long; `end` is the share of the room that its end keeps."""
    if cell_len(name) <= room:
        return name
    n_tail = int((room - 1) * end)
    tail = chop_cells(name[::-1], n_tail)[0][::-1] if n_tail else ""
    head = chop_cells(name, room - 1 - n_tail)[0] if n_tail < room - 1 else ""
    return f"{head}…{tail}"


def shortened_names(names: Sequence[str], room: int) -> list[str]:
    """Return names that fit, as long as they can still be told apart; else they stay whole."""
    for end in (0.5, 1, 0):
        found = [shortened(name, room, end) for name in names]
        if len(set(found)) == len(set(names)):
            return found
    return list(names)


def markdown_table(header: Row, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a Markdown table; all columns but the first are numbers."""
    cells = [[printable(cell).replace("|", r"\|") for cell in row] for row in (header, *rows)]
    first, *rest = (f"| {' | '.join(row)} |" for row in cells)
    return [first, "|---" + "|---:" * (len(header) - 1) + "|", *rest]


def latex_table(header: Row, rows: Sequence[Row]) -> list[str]:
    """Return the lines of a LaTeX table, which needs the package booktabs."""
    first, *rest = (" & ".join(latex_text(printable(cell)) for cell in row) + r" \\" for row in (header, *rows))
    columns = "l" + "r" * (len(header) - 1)
    return [
        *(rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule", *rest),
        *(r"\bottomrule", r"\end{tabular}"),
    ]


_SPECIAL = {"\\": r"\textbackslash{}", "–": "--", "→": r"$\to$", "±": r"$\pm$"} | {c: f"\\{c}" for c in "%_&#${}"}


def latex_text(text: str) -> str:
    """Return the text as LaTeX shows it."""
    return "".join(_SPECIAL.get(character, character) for character in text)
