"""A run's metrics as a table: one row per round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

from fedsir.frames import to_frame


class Metrics(Sequence[dict[str, Any]]):
    """Rows of metrics.jsonl, round 0 first; `metrics["accuracy"]` is a column, None where a round has no such value."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        self._rows = list(rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Metrics: ...
    @overload
    def __getitem__(self, key: str) -> list[Any]: ...
    def __getitem__(self, key: int | slice | str) -> dict[str, Any] | Metrics | list[Any]:
        if isinstance(key, str):
            return [row.get(key) for row in self._rows]
        return Metrics(self._rows[key]) if isinstance(key, slice) else self._rows[key]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<Metrics: {len(self)} rounds of {', '.join(self.columns)}>"

    def append(self, row: dict[str, Any]) -> None:
        """Add the row of the round that was just done."""
        self._rows.append(row)

    @property
    def columns(self) -> list[str]:
        """Names of the values that any round has, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self._rows for name in row))

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with one row per round; needs pandas."""
        return to_frame(self._rows, self.columns)
