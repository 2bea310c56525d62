"""`fedsir compare`: finished runs in one table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsir.cli import options
from fedsir.errors import ConfigError

if TYPE_CHECKING:
    from fedsir.experiment.comparison import Row

HEADER = ("method", "seeds", "accuracy", "±", "sd", "difference", "identified", "label noise")
LEGEND = (
    "±: 95 % bootstrap over the test images, mean over the seeds. sd: standard deviation over the seeds. "
    "difference: to the first row; * where the paired bootstrap over the same test images excludes zero."
)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of finished runs.", show_default=False)
    ],
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table.")] = False,
    as_json: options.Json = False,
) -> None:
    """Put finished runs side by side; runs that differ only in their seed share a row.

    Example: `fedsir compare runs/digits-*`.
    """
    from fedsir.experiment.comparison import compare as compare_runs

    if latex and as_json:
        raise ConfigError("--latex and --json: choose one.")
    rows = compare_runs(folders)
    if as_json:
        typer.echo(json.dumps([row.as_dict() for row in rows], ensure_ascii=False))
    elif latex:
        typer.echo(_latex(rows))
    else:
        _table(rows)


def _cells(row: Row) -> tuple[str, ...]:
    mark = "*" if row.is_different else ""
    return (
        " ".join((row.method, *row.settings)),
        str(len(row.seeds)),
        f"{row.accuracy:.1%}",
        f"{row.half_width:.1%}",
        "–" if row.seed_spread is None else f"{row.seed_spread:.1%}",
        "–" if row.difference is None else f"{100 * row.difference:+.1f}{mark}",
        "–" if row.identification is None else f"{row.identification:.0%}",
        "–" if row.noise_after is None else f"{row.noise_before:.1%} → {row.noise_after:.1%}",
    )


def _table(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(HEADER):
        table.add_column(name, justify="left" if i == 0 else "right", overflow="fold", no_wrap=i > 0)
    for row in rows:
        table.add_row(*_cells(row))
    console.print(table)
    console.print(LEGEND, style="dim", highlight=False)


_SPECIAL = {"\\": r"\textbackslash{}", "–": "--", "→": r"$\to$", "±": r"$\pm$"} | {c: f"\\{c}" for c in "%_&#${}"}


def _latex(rows: list[Row]) -> str:
    """Return the same table for a paper; it needs the package booktabs."""
    lines = [" & ".join(_escaped(cell) for cell in cells) + r" \\" for cells in (HEADER, *map(_cells, rows))]
    columns = "l" + "r" * (len(HEADER) - 1)
    return "\n".join(
        [
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            lines[0],
            r"\midrule",
            *lines[1:],
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(character, character) for character in text)
