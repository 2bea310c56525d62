"""What may be shared of an audit: counts only, and none so small that it points at somebody.

A count from 1 to `min_cell` - 1 becomes "<5". Where a hidden count could be computed from a total that is shown, the
next smallest counts are "hidden", too. Nothing here names a sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedsir.auditing.result import AuditResult, headline
from fedsir.printable import printable

HIDDEN = "hidden"


def shown(count: int, min_cell: int) -> int | str:
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
        counts = [cell["count"] for cell in cells]
        n_shown = sum(count >= min_cell for count in counts)
        total = sum(counts)
        is_total_shown = total >= min_cell
        while is_total_shown and 0 < n_shown < len(cells) and not _is_safe(counts[n_shown:], min_cell):
            n_shown -= 1
        for i, cell in enumerate(cells):
            count = shown(cell["count"], min_cell)
            if i >= n_shown and isinstance(count, int):
                count = HIDDEN
            names = {name: str(cell[name]) for name in ("client", "given", "suggested")}
            rows.append({**names, "count": count})
    return rows


def _is_safe(hidden: list[int], min_cell: int) -> bool:
    """Whether the sum of hidden counts, which a reader can compute, leaves each of them open."""
    return len(hidden) > 1 and sum(hidden) >= min_cell


def shared_summary(result: AuditResult, min_cell: int) -> dict[str, Any]:
    """Return summary.json: the answer in words, and counts."""
    clients = result.clients
    suspicious = [shown(count, min_cell) for count in clients["suspicious"].tolist()]
    verdicts = clients["verdict"].tolist()
    n_suspicious = sum(count for count in suspicious if isinstance(count, int))
    return {
        "headline": shared_headline(result, n_suspicious),
        "clients": clients.n_rows,
        "noisy": verdicts.count("noisy"),
        "clean": verdicts.count("clean"),
        "not_assessed": verdicts.count("not assessed"),
        "samples": int(clients["samples"].sum()),
        "suspicious": n_suspicious,
        "suspicious_hidden": any(isinstance(count, str) for count in suspicious),
        "classes": len(result.class_names),
        "min_cell": min_cell,
        "note": result.note,
    }


def shared_headline(result: AuditResult, n_suspicious: int) -> str:
    """Return the answer in one line, with a total from which no hidden count can be computed."""
    return headline(result.clients, result.samples.n_rows, n_suspicious)


def percent(share: float) -> str:
    """Return a share for people, "?" where it is not known."""
    return "?" if np.isnan(share) else f"{share:.0%}"


def rate_in_words(row: dict[str, Any]) -> str:
    """Return "site-2: 41% of its labels look wrong (38% to 44%)"."""
    low, high = percent(row["noise_rate_low"]), percent(row["noise_rate_high"])
    return f"{printable(str(row['client']))}: {percent(row['noise_rate'])} of its labels look wrong ({low} to {high})"
