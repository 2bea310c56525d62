"""`fedsir.audit`: from features, labels and clients to what looks wrong. NumPy only."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.result import AuditResult
from fedsir.auditing.table import Table
from fedsir.auditing.weighing import trust_by_verdict, weigh_clients
from fedsir.data.arrays import as_column
from fedsir.data.naming import named_entries, readable_name
from fedsir.embeddings import Federation, Identification, identify_in
from fedsir.errors import DataError
from fedsir.stages.bayes import LabelPosterior
from fedsir.stages.rate_interval import LEVEL, RateInterval, rate_interval
from fedsir.stages.spectrum import Array, Labels

UNKNOWN_SCORE = 0.5  # of a sample that cannot be judged: as likely right as wrong
VERDICTS = ("noisy", "clean", "not assessed")  # worst first


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
    judged = _Judged(n)
    intervals: dict[int, RateInterval] = {}
    n_judged: dict[int, int] = {}
    for k, posterior in weigh_clients(federation, trust_by_verdict(found), found.temperature):
        rows = federation.rows(k)
        judged.put(rows, federation.labels[rows], posterior)
        n_judged[k] = int(posterior.is_judged.sum())
        if federation.clients[k] in found.noise_rate and posterior.noise_rate is not None:
            intervals[k] = rate_interval(posterior, federation.labels[rows])
    classes = np.empty(len(federation.classes), object)
    classes[:] = federation.classes
    table = _clients(federation, found, intervals, n_judged, judged)
    order = {client: i for i, client in enumerate(table["client"].tolist())}
    return AuditResult(
        clients=table,
        samples=Table(
            {
                "client": as_column("clients", clients),
                "id": _ids(ids, n),
                "path": _texts("paths", paths, n),
                "given_label": as_column("labels", labels),
                "suggested_label": _like(as_column("labels", labels), classes, judged.suggested, federation.labels),
                "is_label_issue": judged.suggested != federation.labels,
                "score": judged.score,
                "suggested_probability": judged.suggested_probability,
                "rank": _ranks(federation, judged),
            }
        ),
        confusion=_confusion(federation, judged, order),
        class_names=federation.classes,
        n_features=federation.n_features,
        settings={"interval": LEVEL, "temperature": found.temperature},
        note=found.note,
    )


class _Judged:
    """What is known of every sample, in the order of the samples."""

    def __init__(self, n: int) -> None:
        self.suggested: Labels = np.zeros(n, np.int64)
        self.score: Array = np.full(n, UNKNOWN_SCORE)
        self.suggested_probability: Array = np.full(n, UNKNOWN_SCORE)
        self.is_judged: NDArray[np.bool_] = np.zeros(n, bool)

    def put(self, rows: NDArray[np.intp], given: Labels, found: LabelPosterior) -> None:
        """Fill in a client's samples."""
        mine = np.arange(len(given))
        own = found.probabilities[mine, given]
        best = found.labels
        best = np.where(found.probabilities[mine, best] > own, best, given)  # a tie is no accusation
        self.suggested[rows] = np.where(found.is_judged, best, given)
        self.score[rows] = np.where(found.is_judged, own, UNKNOWN_SCORE).clip(0, 1)
        chosen = found.probabilities[mine, best]
        self.suggested_probability[rows] = np.where(found.is_judged, chosen, UNKNOWN_SCORE).clip(0, 1)
        self.is_judged[rows] = found.is_judged


def _clients(
    federation: Federation,
    found: Identification,
    intervals: dict[int, RateInterval],
    n_judged: dict[int, int],
    judged: _Judged,
) -> Table:
    """Return a row per client, worst first."""
    is_issue = judged.suggested != federation.labels
    n_others = len(federation.clients) - 1
    rows = []
    for k, client in enumerate(federation.clients):
        verdict = found.verdict(client)
        interval = intervals.get(k)
        n = found.n_samples[client]
        rows.append(
            {
                "client": client,
                "samples": n,
                "classes": found.n_classes[client],
                "verdict": verdict,
                "reason": found.not_assessed.get(client, ""),
                "evidence": _evidence(n_judged[k], n, n_others, is_rated=interval is not None),
                "noise_rate": np.nan if interval is None else interval.rate,
                "noise_rate_low": np.nan if interval is None else interval.low,
                "noise_rate_high": np.nan if interval is None else interval.high,
                "probability_noisy": _probability(found, interval, client),
                "suspicious": int(is_issue[federation.rows(k)].sum()),
            }
        )
    rows.sort(key=lambda row: (VERDICTS.index(row["verdict"]), -np.nan_to_num(row["noise_rate"]), -row["suspicious"]))
    numbers = {"samples": np.int64, "classes": np.int64, "suspicious": np.int64}
    numbers |= dict.fromkeys(("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy"), np.float64)  # type: ignore[arg-type]
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return Table(columns | {name: np.array(columns[name], kind) for name, kind in numbers.items()})


def _probability(found: Identification, interval: RateInterval | None, client: Any) -> float:
    """Return how likely a client is noisy, by its interval where it has one."""
    return found.probability_noisy.get(client, np.nan) if interval is None else interval.probability_noisy


def _evidence(n_judged: int, n: int, n_others: int, *, is_rated: bool) -> str:
    others = f"{n_others:,} other client{'s' if n_others > 1 else ''}"
    if is_rated:
        return f"{n_judged:,} of {n:,} samples judged by {others}"
    return f"how alike its classes are, compared with {others}"


def _confusion(federation: Federation, judged: _Judged, order: dict[Any, int]) -> Table:
    """Return given → suggested with counts, clients in their order, the most frequent first."""
    cells: list[tuple[Any, Any, Any, int]] = []
    classes = federation.classes
    for client in sorted(federation.clients, key=order.__getitem__):
        rows = federation.rows(federation.clients.index(client))
        moved = judged.suggested[rows] != federation.labels[rows]
        pairs = Counter(
            zip(federation.labels[rows][moved].tolist(), judged.suggested[rows][moved].tolist(), strict=True)
        )
        often = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))
        cells += [(client, classes[given], classes[suggested], count) for (given, suggested), count in often]
    named = ("client", "given", "suggested")
    columns: dict[str, Any] = {name: [cell[i] for cell in cells] for i, name in enumerate(named)}
    return Table(columns | {"count": np.array([cell[3] for cell in cells], np.int64)})


def _ranks(federation: Federation, judged: _Judged) -> NDArray[np.int64]:
    """Return each sample's place in its client's list: by score, those that cannot be judged last."""
    ranks = np.zeros(len(judged.score), np.int64)
    for k in range(len(federation.clients)):
        rows = federation.rows(k)
        order = np.lexsort((rows, judged.score[rows], ~judged.is_judged[rows]))
        ranks[rows[order]] = np.arange(1, len(rows) + 1)
    return ranks


def _like(given: NDArray[Any], classes: NDArray[Any], suggested: Labels, labels: Labels) -> NDArray[Any]:
    """Return suggested labels of the kind that was given."""
    names = np.empty(len(classes), given.dtype)
    names[:] = classes
    return np.where(suggested != labels, names[suggested], given)


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
