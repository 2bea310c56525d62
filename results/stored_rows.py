"""The rows of a measurement, as the scripts next to this file keep them: a CSV, and beside it the table made of it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def stored(file: Path) -> list[dict[str, str]]:
    """Return the rows that the file has; none where there is no file yet."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def add(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Append rows, so that a measurement that is stopped goes on with the next one."""
    is_new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as opened:
        writer = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerows(rows)


def replace(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Store these rows and no others."""
    file.unlink(missing_ok=True)
    add(file, rows)
