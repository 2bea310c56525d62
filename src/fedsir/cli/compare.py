"""`fedsir compare`: finished runs in one table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsir.cli import options
from fedsir.cli.terminal import say, say_json, say_text, width
from fedsir.errors import ConfigError
from fedsir.text_table import latex_table, markdown_table, text_table

if TYPE_CHECKING:
    from fedsir.sweeps.comparison import Row

HEADER = ("method", "seeds", "accuracy", "±", "sd", "difference", "identified", "label noise")
LEGEND = (
    "±: 95 % bootstrap over the test images, mean over the seeds. sd: standard deviation over the seeds. "
    "difference: to {base}; * where the paired bootstrap over the same test images excludes zero, which says nothing "
    "about other seeds."
)


def compare(
    folders: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...", help="Folders of finished runs, or a folder that holds such folders.", show_default=False
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only runs with this setting, as in --only data.noise_rate=0.3; KEY= where it is not set. Repeatable.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="METHOD", help="Method that the others are compared with. Default: that of the first row."
        ),
    ] = None,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX table.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
    as_json: options.Json = False,
) -> None:
    """Put finished runs side by side in one table.

    Runs that differ only in their seed share a row.

    Examples: `fedsir compare runs/digits-*`, `fedsir compare runs --only data.noise_rate=0.3 --against fedsir`.
    """
    from fedsir.runs.config import flat, parse_assignment
    from fedsir.runs.finished_runs import unfinished_in
    from fedsir.sweeps.comparison import compare as compare_runs

    if latex + markdown + as_json > 1:
        raise ConfigError("--latex, --markdown and --json: choose one.")
    chosen = {key: value for text in only or () for key, value in flat(parse_assignment(text, "--only"))}
    rows = compare_runs(folders, chosen, against)
    for folder in folders:
        if left_out := unfinished_in(folder):
            say(f"fedsir: left out of {folder}, not finished: {_some(left_out)}", err=True)
    if as_json:
        say_json([row.as_dict() for row in rows])
    elif latex or markdown:
        for line in (latex_table if latex else markdown_table)(HEADER, [_cells(row) for row in rows]):
            say(line)
    else:
        _print(rows)


def _some(folders: list[Path], n: int = 3) -> str:
    more = f" and {len(folders) - n} more" if len(folders) > n else ""
    return ", ".join(folder.name for folder in folders[:n]) + more


def _cells(row: Row) -> tuple[str, ...]:
    return (
        " ".join((row.method, *row.settings)),
        str(len(row.seeds)),
        f"{row.accuracy:.1%}",
        f"{row.half_width:.1%}",
        "–" if row.seed_spread is None else f"{row.seed_spread:.1%}",
        _difference(row),
        "–" if row.identification is None else f"{row.identification:.0%}",
        "–" if row.noise_after is None else f"{row.noise_before:.1%} → {row.noise_after:.1%}",
    )


def _difference(row: Row) -> str:
    if row.difference is None:
        return "–" if row.is_base else "no common seed"
    return f"{100 * row.difference:+.1f}{'*' if row.is_different else ''}"


def _print(rows: list[Row]) -> None:
    header, *lines = text_table(HEADER, [(row.method, *_cells(row)[1:]) for row in rows], width=width())
    say(header, bold=True)
    for row, line in zip(rows, lines, strict=True):
        say(line)
        for setting in row.settings:  # below its row, whole
            say(f"  {setting}")
    base = next(row for row in rows if row.is_base)
    say_text(LEGEND.format(base=_cells(base)[0]), dim=True)
