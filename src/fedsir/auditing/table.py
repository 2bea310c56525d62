"""A small table: named columns of one length, NumPy only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.frames import to_frame


class Table(Mapping[str, NDArray[Any]]):
    """Columns by name, each (n,) and read-only. `table["score"]` is a column, `table.rows()` yields dicts."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = {name: _read_only(column) for name, column in columns.items()}
        lengths = {len(column) for column in self._columns.values()}
        assert len(lengths) == 1, f"columns of different lengths: {lengths}"
        self.n_rows: int = lengths.pop()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return f"<Table: {self.n_rows:,} rows of {', '.join(self._columns)}>"

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each row as a dict of plain Python values."""
        columns = [column.tolist() for column in self._columns.values()]
        for values in zip(*columns, strict=True):
            yield dict(zip(self._columns, values, strict=True))

    def take(self, rows: NDArray[Any]) -> Table:
        """Return some rows, by number or by a mask."""
        return Table({name: column[rows] for name, column in self._columns.items()})

    def to_frame(self) -> Any:
        """Return a pandas DataFrame; needs pandas."""
        return to_frame({name: column.copy() for name, column in self._columns.items()}, list(self._columns))


def _read_only(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ndarray):
        column = values.view()
    else:
        column = np.empty(len(values), object)  # names of any kind: NumPy must not look into them
        column[:] = list(values)
    column.flags.writeable = False
    return column
