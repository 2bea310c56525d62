"""The pages of an audit: one for everybody, with counts only, and one for each client, with its own samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.report.charts.rows import MOST_ROWS, Axis, Estimate, interval_chart
from fedsir.report.client_tables import ORDER, Cell, Column, Row, client_table, tiles
from fedsir.report.confusion import Confusion, confusion_of
from fedsir.report.drawing import Html
from fedsir.report.key_figures import Figure
from fedsir.report.page import render
from fedsir.report.pictures import Grid, Picture, Shown
from fedsir.report.wording import MISSING, about, count, listed, percent, plural, tick_percent

MOST_SAMPLES = 500  # rows of a client's own table
LIMITS = (
    "A verdict is about labels, not about people: a noisy client may have a hard case mix, another labelling guide or "
    "another device, and its labels may be right by its own rules.",
    "Every number rests on the features that were used. Where they cannot tell two classes apart, wrong labels between "
    "these two stay unseen, and right ones may look suspicious.",
    "Noise rates and their intervals are estimates from this data. A label is a suspect, not a proven error: somebody "
    "has to look.",
    "Clients that were not assessed are neither clean nor noisy. The table says why.",
)


@dataclass(frozen=True)
class AuditedClient:
    """What an audit says of one client; None where it says nothing.

    verdict : "clean", "noisy" or "not assessed"; `reason` says why not
    noise_rate, noise_rate_low, noise_rate_high : estimated share of wrong labels and its interval, in [0, 1]
    suspicious : labels that look wrong; None where it is withheld (below `min_cell`) or nobody looked
    page : address of the client's own page, relative to the audit's page; empty if there is none
    """

    name: str
    samples: int
    classes: int
    verdict: str
    reason: str = ""
    noise_rate: float | None = None
    noise_rate_low: float | None = None
    noise_rate_high: float | None = None
    probability_noisy: float | None = None
    suspicious: int | None = None
    page: str = ""


@dataclass(frozen=True)
class ConfusionCell:
    """How many labels are given as one class and look like another; `count` is None where it is withheld."""

    given: str
    suggested: str
    count: int | None


@dataclass(frozen=True)
class SuspiciousSample:
    """A sample whose label looks wrong.

    score : probability that the given label is right, in [0, 1]
    path : of its image as the data name it; empty for features
    picture : None where there is no image
    """

    rank: int
    id: str
    given: str
    suggested: str
    score: float
    suggested_probability: float | None = None
    path: str = ""
    picture: Picture | None = None


@dataclass(frozen=True)
class AuditView:
    """What the page of an audit shows. It may be shared: it has counts, and no sample.

    headline : the answer in one sentence
    data : what was audited, by a name that may be shared
    features : what the labels were judged by, in words
    class_names : all classes, in order
    clients : in any order; the page shows the worst first
    confusion : over all clients; cells that are not named are 0
    min_cell : counts below it are withheld
    settings : name → value
    notes : what happened while the data were read (images left out, …)
    commands : what comes next: (what it does, the command)
    created : when, as text
    lede : a sentence below the headline
    """

    headline: str
    data: str
    features: str
    class_names: tuple[str, ...]
    clients: tuple[AuditedClient, ...]
    confusion: tuple[ConfusionCell, ...] = ()
    min_cell: int = 5
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    created: str = ""
    lede: str = ""
    limits: tuple[str, ...] = LIMITS


@dataclass(frozen=True)
class ClientView:
    """What a client's own page shows. It has the client's samples and stays with the client.

    headline : the answer for this client in one sentence
    samples : suspicious ones, worst first; as many as the caller wants on the page
    n_suspicious : how many there are
    file : where the whole list is, relative to the page
    why_no_pictures : said where no sample has a picture
    overview : address of the audit's page, relative to this one; empty if there is none
    The other fields are as in `AuditView`.
    """

    headline: str
    data: str
    client: AuditedClient
    class_names: tuple[str, ...]
    samples: tuple[SuspiciousSample, ...]
    n_suspicious: int
    confusion: tuple[ConfusionCell, ...] = ()
    file: str = "samples.csv"
    why_no_pictures: str = ""
    overview: str = "../../report.html"
    features: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    commands: tuple[tuple[str, str], ...] = ()
    created: str = ""
    limits: tuple[str, ...] = LIMITS


def audit_page(view: AuditView) -> str:
    """Return the page of an audit."""
    clients = sorted(view.clients, key=_worst_first)
    rows = [_row(client, f"c{i}", view.min_cell) for i, client in enumerate(clients)]
    shown, left_out = tiles(rows, [_tile_words(client) for client in clients])
    columns = [Column("client", False), Column("verdict", False), *map(Column, COLUMNS)]
    return render(
        "audit.html.j2",
        view=view,
        figures=_figures(view),
        tiles=shown,
        tiles_left_out=left_out,
        table=client_table(
            "All clients, worst first. Choose a column's name to sort by it.", columns, rows, "clients.csv"
        ),
        rates=_rate_chart(clients),
        rates_left_out=_left_out(clients),
        confusion=_confusion(view.confusion, view.class_names, view.min_cell),
        tally=_tally(view.clients),
    )


def client_page(view: ClientView) -> str:
    """Return a client's own page."""
    client = view.client
    pictured = [sample for sample in view.samples if sample.picture is not None]
    grid = Grid(tuple(_shown(sample, client.name) for sample in pictured))
    return render(
        "audit_client.html.j2",
        view=view,
        figures=_client_figures(view),
        grid=grid,
        samples=view.samples[:MOST_SAMPLES],
        n_listed=min(len(view.samples), MOST_SAMPLES),
        has_paths=any(sample.path for sample in view.samples),
        confusion=_confusion(view.confusion, view.class_names, 0),
    )


COLUMNS = ("samples", "classes", "noise rate", "interval", "probability noisy", "suspicious")


def _worst_first(client: AuditedClient) -> tuple[float, float, float, str]:
    probability = client.probability_noisy or 0.0
    return ORDER.get(client.verdict, 3), -(client.noise_rate or 0.0), -probability, client.name


def _row(client: AuditedClient, anchor: str, min_cell: int) -> Row:
    is_assessed = client.verdict != "not assessed"
    withheld = f"<{min_cell}" if is_assessed and min_cell else MISSING
    suspicious = withheld if client.suspicious is None else count(client.suspicious)
    cells = (
        Cell(count(client.samples), client.samples),
        Cell(count(client.classes), client.classes),
        Cell(percent(client.noise_rate), client.noise_rate),
        Cell(interval_words(client), client.noise_rate_low),
        Cell(percent(client.probability_noisy), client.probability_noisy),
        Cell(suspicious, 0 if client.suspicious is None and is_assessed else client.suspicious),
    )
    return Row(client.name, client.verdict, anchor, cells, client.page, client.reason)


def interval_words(client: AuditedClient) -> str:
    """Return the interval of the noise rate."""
    if client.noise_rate_low is None or client.noise_rate_high is None:
        return MISSING
    return f"{percent(client.noise_rate_low)} to {percent(client.noise_rate_high)}"


def _tile_words(client: AuditedClient) -> str:
    if client.verdict == "not assessed" or client.noise_rate is None:
        return client.verdict
    return f"{client.verdict}, {percent(client.noise_rate, 0)}"


def _tally(clients: Sequence[AuditedClient]) -> str:
    return ", ".join(
        f"{count(n)} {verdict}" for verdict in ORDER if (n := sum(client.verdict == verdict for client in clients))
    )


def _figures(view: AuditView) -> list[Figure]:
    noisy = [client for client in view.clients if client.verdict == "noisy"]
    unknown = [client for client in view.clients if client.verdict == "not assessed"]
    n_samples = sum(client.samples for client in view.clients)
    wrong = sum(client.samples * (client.noise_rate or 0.0) for client in view.clients)
    listed_ = sum(client.suspicious or 0 for client in view.clients)
    figures = [
        Figure(
            "Noisy clients", f"{count(len(noisy))} of {count(len(view.clients))}", listed([c.name for c in noisy], 3)
        ),
        Figure("Labels looked at", count(n_samples), plural(len(view.class_names), "class", "classes")),
        Figure(
            "Wrong by estimate", f"≈\u202f{about(wrong)}", percent(wrong / n_samples) + " of all" if n_samples else ""
        ),
        Figure("Listed as suspicious", count(listed_), "each with a suggested label"),
    ]
    if unknown:
        figures.append(Figure("Not assessed", count(len(unknown)), listed([c.name for c in unknown], 3)))
    return figures


def _client_figures(view: ClientView) -> list[Figure]:
    client = view.client
    interval = "" if client.noise_rate_low is None else interval_words(client)
    share = f"{percent(view.n_suspicious / client.samples)} of its labels" if client.samples else ""
    return [
        Figure("Verdict", client.verdict, client.reason),
        Figure("Estimated noise rate", percent(client.noise_rate), interval),
        Figure("Suspicious labels", count(view.n_suspicious), share),
        Figure("Samples", count(client.samples), plural(client.classes, "class", "classes")),
    ]


def _left_out(clients: Sequence[AuditedClient]) -> str:
    assessed = [client for client in clients if client.noise_rate is not None]
    rest = assessed[MOST_ROWS:]
    if not rest:
        return ""
    rates = [client.noise_rate or 0.0 for client in rest]
    return (
        f"The first {MOST_ROWS} of {len(assessed):,} clients are drawn; the rates of the others lie between "
        f"{percent(min(rates))} and {percent(max(rates))}."
    )


def _rate_chart(clients: Sequence[AuditedClient]) -> Html | None:
    estimates = [
        Estimate(
            client.name,
            client.verdict,
            client.noise_rate,
            percent(client.noise_rate),
            f"{client.name}: {client.verdict}, noise rate {percent(client.noise_rate)}"
            + (
                f" ({percent(client.noise_rate_low)} to {percent(client.noise_rate_high)})"
                if client.noise_rate_low is not None
                else ""
            )
            + (
                f", probability noisy {percent(client.probability_noisy)}"
                if client.probability_noisy is not None
                else ""
            ),
            client.noise_rate_low,
            client.noise_rate_high,
        )
        for client in clients
        if client.noise_rate is not None
    ]
    if not estimates:
        return None
    described = "; ".join(f"{e.client} {e.words}" for e in estimates[:12])
    more = f"; and {len(estimates) - 12} more" if len(estimates) > 12 else ""
    axis = Axis("estimated share of wrong labels", tick_percent, low=0.0)
    return interval_chart(
        estimates, axis, key="rates", title="Estimated noise rate of each client", description=f"{described}{more}."
    )


def _confusion(cells: Sequence[ConfusionCell], class_names: Sequence[str], min_cell: int) -> Confusion | None:
    """Return the heat map of the named cells; None where there is none."""
    position = {name: i for i, name in enumerate(class_names)}
    counts: NDArray[np.int64] = np.zeros((len(class_names), len(class_names)), np.int64)
    withheld = {}
    for cell in cells:
        place = position[cell.given], position[cell.suggested]
        counts[place] = max(min_cell // 2, 1) if cell.count is None else cell.count  # only for which classes to show
        if cell.count is None:
            withheld[place] = f"<{min_cell}"
    return confusion_of(counts, class_names, withheld)


def _shown(sample: SuspiciousSample, client: str) -> Shown:
    assert sample.picture is not None, "only samples with a picture get here"
    chances = percent(sample.score, 0)
    if sample.suggested_probability is not None:
        chances += f" → {percent(sample.suggested_probability, 0)}"
    lines = (chances, sample.path or f"id {sample.id}")
    return Shown(sample.picture, sample.id, client, sample.given, sample.suggested, lines)


__all__ = [
    "AuditView",
    "AuditedClient",
    "ClientView",
    "ConfusionCell",
    "SuspiciousSample",
    "audit_page",
    "client_page",
]
