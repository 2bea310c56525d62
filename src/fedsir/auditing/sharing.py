"""What may be shared of an audit: counts only, and none so small that it points at somebody.

A count from 1 to `min_cell` - 1 becomes "<5". Where a hidden count could be computed from a total that is shown, the
next smallest counts are "hidden", too. Nothing here names a sample.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsir.auditing.result import AuditResult, headline
from fedsir.auditing.table import Table

HIDDEN = "hidden"
Count = int | str
"""A count as it may be shared: a number, or words in its place."""


@dataclass(frozen=True)
class Shared:
    """All that may be shared of an audit.

    Attributes
    ----------
    clients, confusion, summary : what clients.csv, confusion.csv and summary.json say
    pooled : given, suggested and count over all clients; None where it is hidden
    class_names, n_features, settings, note : as in an `AuditResult`
    min_cell : smallest count that is shown
    """

    clients: Sequence[dict[str, Any]]
    confusion: Sequence[dict[str, Any]]
    pooled: Sequence[tuple[str, str, int | None]]
    summary: Mapping[str, Any]
    class_names: tuple[Any, ...]
    n_features: int
    settings: Mapping[str, Any]
    note: str
    min_cell: int


def share(result: AuditResult, min_cell: int) -> Shared:
    """Return what may be shared of an audit whose samples are at hand."""
    confusion = shared_confusion(result, min_cell)
    return Shared(
        clients=shared_clients(result, min_cell),
        confusion=confusion,
        pooled=pooled_confusion(confusion, min_cell, result.confusion["count"].tolist()),
        summary=shared_summary(result, min_cell),
        class_names=result.class_names,
        n_features=result.n_features,
        settings=result.settings,
        note=result.note,
        min_cell=min_cell,
    )


def shown(count: int, min_cell: int) -> Count:
    """Return a count as it may be shared."""
    return f"<{min_cell}" if 0 < count < min_cell else count


def shared_clients(result: AuditResult, min_cell: int) -> list[dict[str, Any]]:
    """Return the rows of clients.csv, worst first."""
    rows = []
    for row in result.clients.rows():
        if 0 < row["samples"] < min_cell:  # the sentence says how many there are
            row["evidence"] = ""
        row |= {name: shown(row[name], min_cell) for name in ("samples", "suspicious")}
        rows.append(row | {"client": str(row["client"])})
    return rows


def shared_confusion(result: AuditResult, min_cell: int) -> list[dict[str, Any]]:
    """Return the rows of confusion.csv: given → suggested by client, small counts hidden."""
    by_client: dict[Any, list[dict[str, Any]]] = {}
    for row in result.confusion.rows():
        by_client.setdefault(row["client"], []).append(row)
    rows = []
    for cells in by_client.values():  # the most frequent first
        counts = shown_together([cell["count"] for cell in cells], min_cell)
        for cell, count in zip(cells, counts, strict=True):
            rows.append({**{name: str(cell[name]) for name in ("client", "given", "suggested")}, "count": count})
    return rows


def shown_together(counts: Sequence[int], min_cell: int) -> list[Count]:
    """Return a client's counts, the largest first, as they may be shared beside their sum."""
    n_shown = sum(count >= min_cell for count in counts)
    is_total_shown = sum(counts) >= min_cell
    while is_total_shown and 0 < n_shown < len(counts) and not _is_safe(counts[n_shown:], min_cell):
        n_shown -= 1
    as_shared = [shown(count, min_cell) for count in counts]
    return [HIDDEN if i >= n_shown and isinstance(count, int) else count for i, count in enumerate(as_shared)]


def _is_safe(hidden: Sequence[int], min_cell: int) -> bool:
    """Whether the sum of hidden counts, which a reader can compute, leaves each of them open."""
    return len(hidden) > 1 and sum(hidden) >= min_cell


def pooled_confusion(
    cells: Sequence[Mapping[str, Any]], min_cell: int, true_counts: Sequence[int] | None = None
) -> list[tuple[str, str, int | None]]:
    """Return given → suggested over all clients, from which no client's hidden count can be computed.

    Hidden counts are added only where they are of several clients and many together, and where somebody knows them:
    `true_counts` has one for each cell.
    """
    sums: dict[tuple[str, str], int] = defaultdict(int)
    hidden: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, cell in enumerate(cells):
        pair = cell["given"], cell["suggested"]
        if isinstance(cell["count"], int):
            sums[pair] += cell["count"]
        else:
            hidden[pair].append(0 if true_counts is None else true_counts[i])
    for pair, counts in hidden.items():
        sums[pair] += sum(counts) if len(counts) > 1 and sum(counts) >= min_cell else 0
    return [(*pair, count if count >= min_cell else None) for pair, count in sums.items()]


def shared_summary(result: AuditResult, min_cell: int) -> dict[str, Any]:
    """Return summary.json: the answer in words, and counts."""
    counts = [shown(count, min_cell) for count in result.clients["suspicious"].tolist()]
    return summary_of(result.clients, counts, result.samples.n_rows, len(result.class_names), min_cell, result.note)


def summary_of(
    clients: Table, suspicious: Sequence[Count], n_samples: int, n_classes: int, min_cell: int, note: str
) -> dict[str, Any]:
    """Return summary.json from the table of clients and their counts as shared; its total adds what is shown."""
    verdicts = clients["verdict"].tolist()
    n_suspicious = sum(count for count in suspicious if isinstance(count, int))
    return {
        "headline": headline(clients, n_samples, n_suspicious),
        "clients": clients.n_rows,
        "noisy": verdicts.count("noisy"),
        "clean": verdicts.count("clean"),
        "not_assessed": verdicts.count("not assessed"),
        "samples": n_samples,
        "suspicious": n_suspicious,
        "suspicious_hidden": any(isinstance(count, str) for count in suspicious),
        "classes": n_classes,
        "min_cell": min_cell,
        "note": note,
    }


def percent(share: float) -> str:
    """Return a share for people, "?" where it is not known."""
    return "?" if np.isnan(share) else f"{share:.0%}"
