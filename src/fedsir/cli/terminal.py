"""How commands write: every line goes through here, so that no name can steer the terminal."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import typer

from fedsir.errors import FedsirError
from fedsir.printable import printable
from fedsir.text_table import Row, text_table

LOG_WIDTH = 100  # columns, where the output is not a terminal and COLUMNS is not set


def width() -> int:
    """Return how many columns the output has."""
    return max(shutil.get_terminal_size((LOG_WIDTH, 24)).columns, 20)


def say(line: str, *, err: bool = False, **style: bool) -> None:
    """Print one line, whatever is in it; `style` (bold, dim) shows on a terminal only."""
    text = printable(line)
    if style and os.environ.get("TERM") != "dumb":
        text = typer.style(text, **style)  # echo takes it off again where nobody would see it
    try:
        typer.echo(text, err=err)
    except OSError as problem:  # a full disk, or a pipe whose reader has left
        raise FedsirError(f"The output cannot be written: {problem.strerror}.") from None


def say_text(text: str, **style: bool) -> None:
    """Print sentences, broken into lines."""
    for line in textwrap.wrap(printable(text), width()):
        say(line, **style)


def say_table(
    header: Row, rows: Sequence[Row], *, is_shortened: bool = True, left: Collection[int] = (0,), title: str = ""
) -> None:
    """Print a table; `is_shortened` lets long names in the first column give way on a narrow screen."""
    if title:
        say(title)
    lines = text_table(header, rows, width=width() if is_shortened else None, left=left)
    for i, line in enumerate(lines):
        say(line, **({"bold": True} if header and i == 0 else {}))


def say_json(value: Any) -> None:
    """Print one line of strict JSON: numbers that JSON has no word for are null."""
    from fedsir.runs.run_folder import strict_json

    say(json.dumps(strict_json(value), ensure_ascii=False, allow_nan=False))


def say_files(paths: Sequence[Path]) -> None:
    """Print where results were written."""
    for path in paths:
        say(str(path))


def forget_output() -> None:
    """Drop what the output cannot take any more, so that Python does not try again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def size(n_bytes: float) -> str:
    """Return a number of bytes for people."""
    power = min(int(math.log(max(n_bytes, 1), 1000)), 4)
    return f"{n_bytes / 1000**power:.{0 if power == 0 else 1}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
