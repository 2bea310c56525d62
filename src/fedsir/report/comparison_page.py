"""The page of several runs: what each method reached under the same conditions, and what it cost."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsir.report.charts.lines import Frame, Line, line_chart, swatch
from fedsir.report.charts.rows import MOST_ROWS, Axis, Estimate, interval_chart
from fedsir.report.client_tables import Cell
from fedsir.report.drawing import Html
from fedsir.report.judgement import NumberTable
from fedsir.report.key_figures import Figure
from fedsir.report.page import render
from fedsir.report.run_charts import number_table
from fedsir.report.run_files import RunFiles, read_run
from fedsir.report.wording import MISSING, called, count, duration, listed, percent, plural, points, size, tick_percent
from fedsir.runs.result import RunResult
from fedsir.sweeps.comparison import Row, compare_groups, grouped

MOST_CURVES, MOST_CLIENTS = 8, 40
CONDITIONS = (
    "data.dataset", "data.n_clients", "data.partition", "data.alpha", "data.noise", "data.noise_rate",
    "data.noisy_clients", "data.n_train", "model.name", "model.weights", "rounds", "participation",
)  # fmt: skip
LIMITS = (
    "The ± is a 95 % bootstrap over the test images of the runs that are here. It says nothing about other seeds, "
    "other data or other settings of the methods.",
    "A difference with a star is larger than the choice of test images explains. With few seeds, another seed can "
    "still turn it round.",
    "Nobody tuned the methods for this page. A method with other settings may do better.",
    "In a simulation the noise is made, and the truth is known. Real mistakes are less tidy.",
)


@dataclass(frozen=True)
class MethodRow:
    """A row of the table of methods."""

    name: str
    is_base: bool
    cells: tuple[Cell, ...]


def comparison_page(
    folders: Sequence[Path], *, only: Mapping[str, Any] | None = None, against: str | None = None
) -> str:
    """Return the page of several finished runs; parameters as in `fedsir.sweeps.comparison.compare`."""
    groups = grouped(folders, only)
    rows = compare_groups(groups, against)
    names = row_names(rows)
    files = [[read_run(run.folder) for run in group] for group in groups]
    best = sorted(range(len(rows)), key=lambda i: -rows[i].accuracy)
    shown = sorted(best[:MOST_CURVES])
    common, differing = _settings(groups)
    return render(
        "comparison.html.j2",
        headline=_headline(rows, names),
        lede=_lede(groups, rows),
        figures=_figures(groups, rows, names),
        columns=COLUMNS,
        table=[_method_row(row, name, group) for row, name, group in zip(rows, names, groups, strict=True)],
        base=names[next(i for i, row in enumerate(rows) if row.is_base)],
        chart=_accuracy_chart(rows, names, groups),
        curves=_curves([files[i] for i in shown], [names[i] for i in shown], "accuracy"),
        noise_curves=_curves([files[i] for i in shown], [names[i] for i in shown], "noise_after"),
        keys=[(i, names[row], swatch(i)) for i, row in enumerate(shown)],
        curves_left_out=f"The {MOST_CURVES} best of {len(rows)} are drawn." if len(rows) > MOST_CURVES else "",
        verdicts=_verdicts(files, names),
        common=common,
        differing=differing,
        commands=[_command(run.folder) for group in groups for run in group][:50],
        n_runs=sum(map(len, groups)),
        limits=LIMITS,
    )


# ---------------------------------------------------------------- words


def row_names(rows: Sequence[Row]) -> list[str]:
    """Return a name per row: the method's, and where it has several rows, as few settings as tell them apart."""
    names = []
    for row in rows:
        same = [other for other in rows if other.method == row.method]
        names.append(" ".join((row.method, *_telling(row, same))) if len(same) > 1 else row.method)
    return names


def _telling(row: Row, same: Sequence[Row]) -> list[str]:
    """Return the first setting that no other row of the method shares, or as many as it takes; the preset first."""
    found: list[str] = []
    left = [other for other in same if other is not row]
    for setting in sorted(row.settings, key=lambda text: not text.startswith("method.preset=")):
        still = [other for other in left if setting in other.settings]
        if len(still) < len(left):
            found.append(setting.removeprefix("method."))
            left = still
    return found


def _headline(rows: Sequence[Row], names: Sequence[str]) -> str:
    order = sorted(range(len(rows)), key=lambda i: -rows[i].accuracy)
    best = order[0]
    reached = f"{names[best]} reaches {percent(rows[best].accuracy)}"
    if len(rows) == 1:
        return f"{reached} over {plural(len(rows[0].seeds), 'seed')}"
    second = order[1]
    gap = 100 * (rows[best].accuracy - rows[second].accuracy)
    if len(rows) == 2:
        return f"{reached}, {gap:.1f} points more than {names[second]}"
    return f"Of {len(rows)} {_kind(rows)}s, {reached} and is {gap:.1f} points ahead of {names[second]}"


def _kind(rows: Sequence[Row]) -> str:
    return "method" if len({row.method for row in rows}) == len(rows) else "variant"


def _lede(groups: Sequence[Sequence[RunResult]], rows: Sequence[Row]) -> str:
    first = groups[0][0]
    settings = first.settings
    seeds = sorted({seed for row in rows for seed in row.seeds})
    said = [f"Test accuracy on {settings['data.dataset']}"]
    if settings.get("data.n_clients"):
        said.append(plural(int(settings["data.n_clients"]), "client"))
    said.append(plural(int(settings["rounds"]), "round"))
    said.append(f"{'seed' if len(seeds) == 1 else 'seeds'} {listed([str(seed) for seed in seeds], 10)}")
    return ", ".join(said) + "."


def _figures(groups: Sequence[Sequence[RunResult]], rows: Sequence[Row], names: Sequence[str]) -> list[Figure]:
    best = max(range(len(rows)), key=lambda i: rows[i].accuracy)
    cheapest = min(range(len(rows)), key=lambda i: _mean(groups[i], "bytes_up", "bytes_down"))
    figures = [
        Figure("Runs", count(sum(map(len, groups))), plural(len(rows), _kind(rows))),
        Figure("Best accuracy", percent(rows[best].accuracy), names[best]),
    ]
    repaired = [i for i in range(len(rows)) if rows[i].noise_after is not None]
    if repaired:
        least = min(repaired, key=lambda i: rows[i].noise_after or 0.0)
        figures.append(Figure("Fewest wrong labels left", percent(rows[least].noise_after), names[least]))
    figures.append(Figure("Fewest bytes", size(_mean(groups[cheapest], "bytes_up", "bytes_down")), names[cheapest]))
    return figures


def _mean(group: Sequence[RunResult], *keys: str) -> float:
    return float(np.mean([sum(run[key] for key in keys) for run in group]))


# ---------------------------------------------------------------- table and charts

COLUMNS = ("seeds", "accuracy", "±", "sd", "difference", "identified", "wrong before", "wrong after", "bytes", "time")


def _method_row(row: Row, name: str, group: Sequence[RunResult]) -> MethodRow:
    difference = MISSING
    if row.difference is not None:
        difference = points(row.difference) + ("*" if row.is_different else "")
    sent, seconds = _mean(group, "bytes_up", "bytes_down"), _mean(group, "seconds")
    cells = (
        Cell(count(len(row.seeds)), len(row.seeds)),
        Cell(percent(row.accuracy), row.accuracy),
        Cell(percent(row.half_width), row.half_width),
        Cell(percent(row.seed_spread), row.seed_spread),
        Cell(difference, row.difference),
        Cell(percent(row.identification, 0), row.identification),
        Cell(percent(row.noise_before), row.noise_before),
        Cell(percent(row.noise_after), row.noise_after),
        Cell(size(sent), sent),
        Cell(duration(seconds), seconds),
    )
    return MethodRow(name, row.is_base, cells)


def _accuracy_chart(rows: Sequence[Row], names: Sequence[str], groups: Sequence[Sequence[RunResult]]) -> Html:
    estimates = []
    for i in sorted(range(len(rows)), key=lambda i: -rows[i].accuracy)[:MOST_ROWS]:
        row = rows[i]
        each = tuple(float(run["accuracy"]) for run in groups[i])
        low, high = max(0.0, row.accuracy - row.half_width), min(1.0, row.accuracy + row.half_width)
        tip = f"{names[i]}: {percent(row.accuracy)} ± {percent(row.half_width)}"
        if len(each) > 1:
            tip += f", seeds from {percent(min(each))} to {percent(max(each))}"
        others, words = each if len(each) > 1 else (), percent(row.accuracy)
        estimates.append(Estimate(names[i], "plain", row.accuracy, words, tip, low, high, others=others))
    return interval_chart(
        estimates,
        Axis("test accuracy", tick_percent),
        key="reached",
        title="Test accuracy of each method",
        description="; ".join(f"{e.client} {e.words}" for e in estimates) + ".",
    )


@dataclass(frozen=True)
class Curves:
    """A chart of lines over rounds, and its numbers."""

    chart: Html
    numbers: NumberTable
    has_bands: bool


def _curves(groups: Sequence[Sequence[RunFiles]], names: Sequence[str], key: str) -> Curves | None:
    """Return a line per group over the rounds that all its seeds have: their mean, and from lowest to highest."""
    lines = []
    for name, group in zip(names, groups, strict=True):
        by_round = [{line["round"]: line[key] for line in run.lines if line.get(key) is not None} for run in group]
        shared = sorted(set.intersection(*map(set, by_round)))
        values = np.array([[at[t] for t in shared] for at in by_round])
        mean = tuple(zip(shared, values.mean(axis=0).tolist(), strict=True)) if shared else ()
        band: tuple[tuple[int, float, float], ...] = ()
        if len(by_round) > 1 and shared:
            band = tuple(zip(shared, values.min(axis=0).tolist(), values.max(axis=0).tolist(), strict=True))
        lines.append(Line(name, mean, band))
    if not any(line.points for line in lines) or (key == "noise_after" and not _differ(lines)):
        return None
    title = "Test accuracy over the rounds" if key == "accuracy" else "Wrong labels left over the rounds"
    drawn = [line for line in lines if line.points]
    if len(drawn) < len(lines):  # a number stands for the same line in every chart, so a chart has all or none
        return None
    lowest = None if key == "accuracy" else 0.0
    chart = line_chart(
        drawn,
        Frame(
            title.partition(" over")[0].lower(),
            tick_percent,
            percent,
            low=lowest,
        ),
        key=f"curves-{key.replace('_', '-')}",
        title=title,
        description="At the end: " + "; ".join(f"{line.name} {percent(line.points[-1][1])}" for line in drawn) + ".",
    )
    rounds = sorted({t for line in drawn for t, _ in line.points})
    by_line = [dict(line.points) for line in drawn]
    table = number_table(
        f"{title}, mean over the seeds", ("round", *(line.name for line in drawn)),
        [(str(t), *(percent(at.get(t)) for at in by_line)) for t in rounds],
    )  # fmt: skip
    return Curves(chart, table, any(line.band for line in drawn))


def _differ(lines: Sequence[Line]) -> bool:
    """Whether any line moves: a method that corrects nothing has a flat one."""
    return any(len({value for _, value in line.points}) > 1 for line in lines)


@dataclass(frozen=True)
class VerdictTable:
    """Who called whom noisy, on the same data: a row per client, a column per method.

    truth : "clean" or "noisy" by client; empty where nobody knows
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    truth: Mapping[str, str]
    seed: Any
    left_out: str


def _verdicts(files: Sequence[Sequence[RunFiles]], names: Sequence[str]) -> VerdictTable | None:
    """Return the verdicts of the first seed that several methods share on the same federation."""
    first = next((run for group in files for run in group if run.verdicts() and run.federation is not None), None)
    if first is None or first.federation is None:
        return None
    chosen: list[tuple[str, dict[str, str]]] = []
    for name, group in zip(names, files, strict=True):
        for run in group:
            same = run.federation is not None and run.federation.sha256 == first.federation.sha256
            if same and run.verdicts():
                chosen.append((name, run.verdicts()))
                break
    if len(chosen) < 2:
        return None
    noisy = first.federation.really_noisy
    truth = {} if noisy is None else {k: "noisy" if k in noisy else "clean" for k in first.federation.sizes}
    clients = sorted(first.clients, key=lambda k: -sum(said.get(k) == "noisy" for _, said in chosen))
    rows = tuple((called(k), tuple(said.get(k, MISSING) for _, said in chosen)) for k in clients[:MOST_CLIENTS])
    left_out = f"{MOST_CLIENTS} of {len(clients):,} clients are listed." if len(clients) > MOST_CLIENTS else ""
    by_name = {called(k): word for k, word in truth.items()}
    return VerdictTable(tuple(name for name, _ in chosen), rows, by_name, first.settings["seed"], left_out)


# ---------------------------------------------------------------- settings and commands


def _settings(groups: Sequence[Sequence[RunResult]]) -> tuple[list[tuple[str, str]], list[tuple[str, list[str]]]]:
    """Return the settings that all rows share, the most important first, and those that differ, by row."""
    everybody = [group[0].settings for group in groups]
    keys = [*CONDITIONS, *sorted({key for settings in everybody for key in settings} - set(CONDITIONS))]
    common, differing = [], []
    for key in keys:
        values = [settings.get(key) for settings in everybody]
        if all(value is None for value in values):
            continue
        said = ["not set" if value is None else str(value) for value in values]
        if len(set(said)) == 1:
            common.append((key, said[0]))
        else:
            differing.append((key, said))
    return common, differing


def _command(folder: Path) -> str:
    name = folder.resolve().name
    return shlex.join(["fedsir", "run", f"{name}/config.toml", "--out", f"{name}-again"])
