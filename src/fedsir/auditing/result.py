"""What `fedsir.audit` returns: three tables, and how they become files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.table import Table
from fedsir.errors import DataError
from fedsir.printable import printable

MOST_NAMED = 5  # noisy clients in the headline; more are counted
MIN_CELL = 5  # samples; a smaller count is not shared


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class AuditResult:
    """Which clients' labels look wrong, and which labels.

    Attributes
    ----------
    clients : a row per client, worst first: client, samples, classes, verdict (clean, noisy or not assessed), reason,
        evidence, noise_rate with noise_rate_low and noise_rate_high, probability_noisy, suspicious
    samples : a row per sample, in the order given: client, id, path, given_label, suggested_label, is_label_issue,
        score (probability that the given label is right), suggested_probability, rank (1 is the worst of its client)
    confusion : how many suspicious samples of each client are given → suggested: client, given, suggested, count
    class_names : every label, in natural order
    n_features : columns of the features
    settings : what was asked for, and how far features were trusted (temperature)
    note : what you would not expect of the verdict; else empty
    """

    clients: Table
    samples: Table
    confusion: Table
    class_names: tuple[Any, ...]
    n_features: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def headline(self) -> str:
        """The answer in one line."""
        return headline(self.clients, self.samples.n_rows, int(self.clients["suspicious"].sum()))

    def __str__(self) -> str:
        return self.headline

    def to_frame(self, table: Literal["samples", "clients", "confusion"] = "samples") -> Any:
        """Return one of the tables as a pandas DataFrame; needs pandas."""
        if table not in ("samples", "clients", "confusion"):
            raise DataError(f"table must be 'samples', 'clients' or 'confusion', not {table!r}")
        chosen: Table = getattr(self, table)
        return chosen.to_frame()

    def of_client(self, client: Any) -> Table:
        """Return the samples of one client, worst first."""
        mine = np.flatnonzero(_is(self.samples["client"], client))
        if not len(mine):
            raise DataError(f"there is no client {client!r}")
        return self.samples.take(mine[np.argsort(self.samples["rank"][mine], kind="stable")])

    def report(self, path: str | Path, *, min_cell: int = MIN_CELL) -> Path:
        """Write the page that may be shared, one HTML file without samples, and return its path."""
        from fedsir.auditing.folder_writer import ARRAYS, write_page

        return write_page(self, Path(path), ARRAYS, min_cell=min_cell)

    def save(self, folder: str | Path, *, min_cell: int = MIN_CELL) -> Path:
        """Write all tables and pages into a folder, new or of an earlier audit, and return it.

        Counts below `min_cell` are hidden in the files that are made to be shared.
        """
        from fedsir.auditing.folder_writer import write_folder

        return write_folder(self, Path(folder), min_cell=min_cell)


def headline(clients: Table, n_samples: int, n_suspicious: int) -> str:
    """Return how many clients look noisy, which, and how many labels are suspect."""
    noisy = [str(client) for client in clients["client"][clients["verdict"] == "noisy"]]
    named = f" ({', '.join(printable(name) for name in noisy)})" if 0 < len(noisy) <= MOST_NAMED else ""
    n_clients, n_left = clients.n_rows, int((clients["verdict"] == "not assessed").sum())
    left = f", {n_left:,} could not be assessed" if n_left else ""
    look = "looks" if len(noisy) == 1 else "look"
    return (
        f"{len(noisy) or 'None'} of {n_clients:,} clients {look} noisy{named}{left}; "
        f"{about(n_suspicious)} of {n_samples:,} labels are suspect"
    )


def about(count: int) -> str:
    """Return a count for people: two digits of it, "about" where that is not all."""
    rounded = int(float(f"{count:.2g}"))
    return f"{count:,}" if rounded == count else f"about {rounded:,}"


def _is(column: NDArray[Any], entry: Any) -> NDArray[np.bool_]:
    return np.array([value == entry for value in column.tolist()], bool)
