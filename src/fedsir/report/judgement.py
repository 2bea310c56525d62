"""How a run's method judged its clients, as a chart: noise rates, effects, losses, or two similarities per client."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsir.report.charts.rows import MOST_ROWS, Axis, Estimate, interval_chart
from fedsir.report.charts.scatter import Point, gaussians, scatter_chart
from fedsir.report.drawing import Html
from fedsir.report.run_files import RunFiles
from fedsir.report.wording import called, number, percent, tick_percent
from fedsir.stages.noise_rates import CONVINCING, LIMIT
from fedsir.stages.split import ClientSplit, Evidence, PairEvidence

NORMAL_95 = 1.96
SPECTRAL = {"fedsir", "pruning"}  # the methods whose statistics are mean and energy


@dataclass(frozen=True)
class NumberTable:
    """The numbers behind a chart, for those who do not see it."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: str = ""


@dataclass(frozen=True)
class Judgement:
    """A chart of how clients were judged, how to read it, and what the evidence is in words.

    columns : names of the numbers; by_client : client → them, as (number, words)
    """

    chart: Html
    how: str
    evidence: str
    has_truth: bool
    columns: tuple[str, ...]
    by_client: Mapping[str, tuple[tuple[float, str], ...]]
    left_out: str = ""


def judgement(files: RunFiles) -> Judgement | None:
    """Return how the clients of a run were judged; None where its method does not judge, or did not say how."""
    split = files.split
    if split is None:
        return None
    truth = files.federation.noise_by_client if files.federation is not None else None
    verdicts = files.verdicts()
    if split.noise_rates:
        return _rates(split, verdicts, truth)
    if split.effects:
        return _effects(split, verdicts)
    statistics = {client: values for client, values in split.statistics.items() if all(map(math.isfinite, values))}
    if not statistics:
        return None
    if all(len(values) == 2 for values in statistics.values()) and files.method in SPECTRAL:
        return _similarities(split, statistics, verdicts)
    return _losses(split, statistics, verdicts)


def _rates(split: ClientSplit, verdicts: Mapping[str, str], truth: Mapping[str, float] | None) -> Judgement:
    errors = {k: values[1] for k, values in split.statistics.items() if len(values) == 2 and math.isfinite(values[1])}
    order = sorted(split.noise_rates, key=lambda k: -split.noise_rates[k])
    estimates, by_client = [], {}
    for client in order:
        rate, error = split.noise_rates[client], errors.get(client)
        reach = None if error is None else NORMAL_95 * error
        low, high = (None, None) if reach is None else (max(0.0, rate - reach), min(1.0, rate + reach))
        true = None if truth is None else truth.get(client)
        tip = f"{called(client)}: {verdicts.get(client, '')}, noise rate {percent(rate)}"
        tip += "" if error is None else f" (standard error {percent(error)})"
        tip += "" if true is None else f", in truth {percent(true)}"
        estimates.append(Estimate(called(client), verdicts.get(client, ""), rate, percent(rate), tip, low, high, true))
        by_client[client] = ((rate, percent(rate)), (_or_nan(error), percent(error)))
    axis = Axis("estimated share of wrong labels", tick_percent, low=0.0, limit=(LIMIT, "limit"))
    how = (
        "Each client's labels were judged by what the classes of all the other clients look like. The sign is the "
        "estimated share of wrong labels, the bar reaches 1.96 standard errors to each side (about 95 %). A client is "
        f"noisy if its rate is above the dotted line, {percent(LIMIT, 0)}, with a probability of more than "
        f"{percent(CONVINCING, 0)}."
    )
    chart = interval_chart(
        estimates, axis, key="judged", title="Estimated noise rate of each client", description=_described(estimates)
    )
    columns = ("noise rate", "standard error")
    return Judgement(chart, how, "", truth is not None, columns, by_client, _left_out(estimates))


def _effects(split: ClientSplit, verdicts: Mapping[str, str]) -> Judgement:
    order = sorted(split.effects, key=lambda k: -split.effects[k][0])
    estimates, by_client = [], {}
    for client in order:
        effect, error = split.effects[client]
        if not math.isfinite(effect):
            continue
        reach = NORMAL_95 * error if math.isfinite(error) else None
        low, high = (None, None) if reach is None else (effect - reach, effect + reach)
        tip = f"{called(client)}: {verdicts.get(client, '')}, effect {number(effect)}, standard error {number(error)}"
        estimates.append(Estimate(called(client), verdicts.get(client, ""), effect, number(effect), tip, low, high))
        by_client[client] = ((effect, number(effect)), (error, number(error)))
    axis = Axis("how much more alike its classes look than those of clean clients", number, limit=(0.0, "clean"))
    how = (
        "Every two classes were compared across clients. The effect says how much more alike the classes of a client "
        "look than those of clean clients, whose effects lie around the dotted line; wrong labels make classes look "
        "alike. The bar reaches 1.96 standard errors to each side."
    )
    chart = interval_chart(
        estimates, axis, key="judged", title="Effect of each client", description=_described(estimates)
    )
    evidence = _evidence(split)
    return Judgement(chart, how, evidence, False, ("effect", "standard error"), by_client, _left_out(estimates))


def _losses(split: ClientSplit, statistics: Mapping[str, tuple[float, ...]], verdicts: Mapping[str, str]) -> Judgement:
    means = {client: sum(values) / len(values) for client, values in statistics.items() if values}
    estimates, by_client = [], {}
    for client in sorted(means, key=lambda k: -means[k]):
        values = statistics[client]
        reach = f"from {number(min(values))} to {number(max(values))}"
        tip = f"{called(client)}: {verdicts.get(client, '')}, mean {number(means[client])}, {reach}"
        words = number(means[client])
        estimates.append(
            Estimate(called(client), verdicts.get(client, ""), means[client], words, tip, min(values), max(values))
        )
        by_client[client] = ((means[client], words),)
    how = (
        "Each client sent numbers about its classes, such as the mean loss of a first model on each of them. The sign "
        "is their mean, the bar reaches from the lowest to the highest. The method put the clients into two groups."
    )
    chart = interval_chart(
        estimates,
        Axis("mean over classes", number),
        key="judged",
        title="What each client was judged by",
        description=_described(estimates),
    )
    return Judgement(chart, how, _evidence(split), False, ("mean over classes",), by_client, _left_out(estimates))


def _similarities(
    split: ClientSplit, statistics: Mapping[str, tuple[float, ...]], verdicts: Mapping[str, str]
) -> Judgement:
    points, by_client = [], {}
    for client, (mean, energy) in statistics.items():
        verdict = verdicts.get(client, "not assessed")
        tip = f"{called(client)}: {verdict}, mean {mean:.3f}, energy {energy:.3f}"
        points.append(Point(client, verdict, mean, energy, split.posterior_noisy.get(client), tip))
        by_client[client] = ((mean, f"{mean:.3f}"), (energy, f"{energy:.3f}"))
    groups = gaussians(points)
    how = (
        "Each client sent two numbers about how alike its classes look: the mean of their similarities, and their "
        "energy. Wrong labels mix classes and make them look alike, so noisy clients lie up and to the right. "
        "The ellipses are the two groups that the method saw, two standard deviations wide."
    )
    described = "; ".join(f"{p.client} {p.verdict} {p.x:.2f}, {p.y:.2f}" for p in points[:12])
    more = f"; and {len(points) - 12} more" if len(points) > 12 else ""
    chart = scatter_chart(
        points,
        groups,
        x_label="mean similarity of two classes",
        y_label="energy of the similarities",
        key="judged",
        title="Mean and energy of each client's class similarities",
        description=f"{described}{more}.",
    )
    return Judgement(chart, how, _evidence(split), False, ("mean similarity", "energy"), by_client)


def _evidence(split: ClientSplit) -> str:
    """Return what speaks for two groups, in words."""
    evidence, found = split.evidence, split.two_groups
    if evidence is None:
        return split.note
    opening = {
        "found": "The method found two groups",
        "not found": "The method found no convincing sign of two groups, so nobody is called noisy",
        "asked for": "The method was told to make two groups, whatever the evidence",
    }[found]
    apart = f"they lie {number(evidence.separation)} spreads apart"
    if isinstance(evidence, PairEvidence):
        weight = f"{apart}, and two groups have a probability of {percent(evidence.probability)}"
    else:
        weight = f"{apart}; one group would look as split in {percent(evidence.p_value, 2)} of cases"
    sentence = f"{opening}: {weight}."
    if found == "asked for" and isinstance(evidence, Evidence) and not evidence.is_convincing:
        sentence += " That is weak evidence: the verdicts may mean nothing."
    return f"{sentence} {split.note}".strip()


def _described(estimates: Sequence[Estimate]) -> str:
    said = "; ".join(f"{e.client} {e.words}" for e in estimates[:12])
    return f"{said}{f'; and {len(estimates) - 12} more' if len(estimates) > 12 else ''}."


def _left_out(estimates: Sequence[Estimate]) -> str:
    rest = estimates[MOST_ROWS:]
    if not rest:
        return ""
    ends = f"between {min(rest, key=lambda e: e.value).words} and {max(rest, key=lambda e: e.value).words}"
    return (
        f"The {MOST_ROWS} highest of {len(estimates):,} clients are drawn; the others lie {ends}. The table has them."
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
