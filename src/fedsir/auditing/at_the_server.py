"""The server's part of a federated audit: from what sites replied to the files that may be shared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fedsir.auditing.federated import SMALL, Outcome
from fedsir.auditing.findings import client_row, clients_table, worst_first
from fedsir.auditing.sharing import HIDDEN, Count, Shared, pooled_confusion, shown, summary_of
from fedsir.methods.replies import ClientId
from fedsir.stages.rate_interval import LEVEL

UNTOLD = ""  # in place of a count that a site never told


def share_outcome(
    outcome: Outcome,
    class_names: Sequence[str],
    min_cell: int,
    n_samples: Mapping[ClientId, int],
    left_out: Mapping[str, str],
) -> Shared:
    """Return what may be shared of a federated audit; the server knows no more than that itself.

    Parameters
    ----------
    n_samples : how many samples sites said they have, of all that were there when the audit began
    left_out : who could not even begin → why
    """
    rows = worst_first(_row(outcome, client, n, min_cell) for client, n in n_samples.items())
    confusion = [cell for row in rows for cell in _cells(outcome, row["client"], class_names, min_cell)]
    known = clients_table({**row, "suspicious": 0} for row in rows)
    suspicious = [row["suspicious"] for row in rows if row["suspicious"] != UNTOLD]
    total = sum(n for client, n in n_samples.items() if client in outcome.counts)
    summary = summary_of(known, suspicious, total, len(class_names), min_cell, outcome.note)
    return Shared(
        clients=[_shown(row, min_cell) for row in rows],
        confusion=confusion,
        pooled=pooled_confusion(confusion, min_cell),
        summary=summary | {"left_out": {**left_out, **outcome.failures}},
        class_names=tuple(class_names),
        n_features=next(reply.moments.sums.shape[1] for reply in outcome.sums.values()),
        settings={"interval": LEVEL, "temperature": outcome.temperature},
        note=outcome.note,
        min_cell=min_cell,
    )


def _row(outcome: Outcome, client: ClientId, n: int, min_cell: int) -> dict[str, Any]:
    counts, sums = outcome.counts.get(client), outcome.sums.get(client)
    verdict, reason = outcome.verdicts[client]
    row = client_row(
        client,
        n if sums is None else sums.n_samples,
        0 if sums is None else sums.n_classes,
        verdict,
        reason,
        judged="" if counts is None else counts.judged,
        n_others=outcome.n_others,
        interval=None if counts is None else counts.interval,
        probability=np.nan if counts is None else outcome.probabilities.get(client, np.nan),
        suspicious=0,
    )
    if counts is None:
        return row | {"suspicious": UNTOLD, "evidence": ""}
    return row | {"suspicious": _told(counts.suspicious, min_cell)}


def _shown(row: Mapping[str, Any], min_cell: int) -> dict[str, Any]:
    """Return a row of clients.csv; its sentence says how many samples there are, so few of them take it away."""
    samples = shown(row["samples"], min_cell)
    return {**row, "samples": samples, "evidence": row["evidence"] if isinstance(samples, int) else ""}


def _cells(outcome: Outcome, client: ClientId, class_names: Sequence[str], min_cell: int) -> Iterator[dict[str, Any]]:
    """Yield a site's rows of confusion.csv, the most frequent first, hidden ones last."""
    if client not in outcome.counts:
        return
    confusion = outcome.counts[client].confusion
    pairs = sorted(zip(*np.nonzero(confusion), strict=True), key=lambda pair: (-confusion[pair], pair))
    for given, suggested in pairs:
        names = {"client": client, "given": class_names[given], "suggested": class_names[suggested]}
        yield {**names, "count": _told(int(confusion[given, suggested]), min_cell)}


def _told(count: int, min_cell: int) -> Count:
    """Return a count as a site told it, in the words of the shared files."""
    return count if count >= 0 else f"<{min_cell}" if count == SMALL else HIDDEN
