"""`fedsir.audit`: from features, labels and clients to what looks wrong. NumPy only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.findings import Findings, client_row, clients_table, confusion_table, labels_like
from fedsir.auditing.result import AuditResult
from fedsir.auditing.table import Table
from fedsir.auditing.weighing import trust_by_verdict, weigh_clients
from fedsir.data.arrays import as_column
from fedsir.data.naming import named_entries, readable_name
from fedsir.embeddings import Federation, identify_in
from fedsir.errors import DataError
from fedsir.stages.rate_interval import LEVEL, rate_interval


def audit(features: Any, labels: Any, clients: Any, *, ids: Any = None, paths: Any = None) -> AuditResult:
    """Return which clients' labels look wrong, how many of them, and which, from features of any embedding.

    Each client is judged by what the classes of all the others look like. Only sums over a client's samples are put
    together; what is said of single samples needs nobody else's samples.

    Parameters
    ----------
    features, labels, clients : as for `fedsir.identify`
    ids : (n,) what samples are called, each once; by default their row numbers
    paths : (n,) where a sample's image lies, for the tables
    """
    federation = Federation(features, labels, clients)
    _refuse_doubles("labels", federation.classes)
    _refuse_doubles("clients", federation.clients)
    found = identify_in(federation)
    n = len(federation.labels)
    suggested, rank = np.zeros(n, np.int64), np.zeros(n, np.int64)
    score, suggested_probability = np.zeros(n), np.zeros(n)
    rows_of_clients: list[dict[str, Any]] = []
    cells: dict[Any, list[tuple[Any, Any, Any, int]]] = {}
    classes = federation.classes
    for k, posterior in weigh_clients(federation, trust_by_verdict(found), found.temperature):
        rows, client = federation.rows(k), federation.clients[k]
        given = federation.labels[rows]
        mine = Findings.of(given, posterior)
        suggested[rows], score[rows], rank[rows] = mine.suggested, mine.score, mine.ranks()
        suggested_probability[rows] = mine.suggested_probability
        is_rated = client in found.noise_rate and posterior.noise_rate is not None
        cells[client] = [(client, classes[one], classes[other], count) for one, other, count in mine.cells(given)]
        rows_of_clients.append(
            client_row(
                client,
                found.n_samples[client],
                found.n_classes[client],
                found.verdict(client),
                found.not_assessed.get(client, ""),
                judged=mine.part_judged(),
                n_others=len(federation.clients) - 1,
                interval=rate_interval(posterior, given) if is_rated else None,
                probability=found.probability_noisy.get(client, np.nan),
                suspicious=int((mine.suggested != given).sum()),
            )
        )
    table = clients_table(rows_of_clients)
    given_labels = as_column("labels", labels)
    return AuditResult(
        clients=table,
        samples=Table(
            {
                "client": as_column("clients", clients),
                "id": _ids(ids, n),
                "path": _texts("paths", paths, n),
                "given_label": given_labels,
                "suggested_label": labels_like(given_labels, classes, suggested, federation.labels),
                "is_label_issue": suggested != federation.labels,
                "score": score,
                "suggested_probability": suggested_probability,
                "rank": rank,
            }
        ),
        confusion=confusion_table(cell for client in table["client"].tolist() for cell in cells[client]),
        class_names=federation.classes,
        n_features=federation.n_features,
        settings={"interval": LEVEL, "temperature": found.temperature},
        note=found.note,
    )


def _ids(ids: Any, n: int) -> NDArray[Any]:
    """Return what each sample is called, as text."""
    if ids is None:
        return np.array([str(row) for row in range(n)])
    entries, names = named_entries("ids", ids, n, "rows of features")
    texts = [names[entry] for entry in entries]
    if len(set(texts)) < n:
        often, count = Counter(texts).most_common(1)[0]
        raise DataError(f"ids: {often!r} names {count} samples; each needs an id of its own")
    return np.array(texts)


def _texts(what: str, values: Any, n: int) -> NDArray[Any]:
    if values is None:
        return np.full(n, "")
    array = as_column(what, values)
    if array.shape != (n,):
        raise DataError(f"{what} have shape {array.shape}, but there are {n} rows of features: give one for each")
    return np.array([readable_name(f"{what}: row {row}", entry) for row, entry in enumerate(array.tolist())])


def _refuse_doubles(what: str, entries: tuple[Any, ...]) -> None:
    """Refuse two entries, such as 1 and "1", that no file could tell apart."""
    often, count = Counter(map(str, entries)).most_common(1)[0]
    if count > 1:
        raise DataError(f"{what}: {count} different ones are called {often!r}; in a table nobody could tell them apart")
