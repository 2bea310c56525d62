"""Charts over the rounds of a run, and of what relabelling did to each client's labels."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fedsir.report.charts.lines import Frame, Line, line_chart
from fedsir.report.charts.rows import MOST_ROWS, Axis, Change, change_chart
from fedsir.report.drawing import Html
from fedsir.report.judgement import NumberTable
from fedsir.report.run_files import RunFiles
from fedsir.report.wording import MISSING, called, count, percent, size, tick_percent

MOST_LINES = 30
MOST_NUMBERS = 120  # rows of a table of numbers


def number_table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "rounds"
) -> NumberTable:
    """Return the numbers behind a chart; of many rows every second, third, …, and always the last."""
    step = -(-len(rows) // MOST_NUMBERS)
    kept = [row for i, row in enumerate(rows) if i % step == 0 or i == len(rows) - 1] if rows else []
    left_out = f"{len(kept):,} of {len(rows):,} {kind} are listed." if len(kept) < len(rows) else ""
    return NumberTable(caption, tuple(header), tuple(tuple(row) for row in kept), left_out)


def accuracies(lines: Sequence[Mapping[str, Any]]) -> tuple[tuple[int, float], ...]:
    """Return (round, accuracy) of the rounds that were evaluated."""
    return tuple((int(line["round"]), float(line["accuracy"])) for line in lines if line.get("accuracy") is not None)


def accuracy_chart(files: RunFiles) -> tuple[Html, NumberTable] | None:
    """Return test accuracy over the rounds, relabellings marked."""
    points = accuracies(files.lines)
    if not points:
        return None
    marks = tuple(line["round"] for line in files.lines if line.get("has_relabelled"))
    chart = line_chart(
        [Line(files.method, points)],
        Frame("test accuracy", tick_percent, tell=percent, marks=marks if len(marks) <= 40 else ()),
        key="accuracy",
        title="Test accuracy over the rounds",
        description=f"From {percent(points[0][1])} in round {points[0][0]} to {percent(points[-1][1])} at the end.",
    )
    rows = [
        (
            str(line["round"]),
            percent(line.get("accuracy")),
            percent(line.get("noise_after")),
            count(line.get("relabelled")),
            "yes" if line.get("has_relabelled") else MISSING,
        )
        for line in files.lines
    ]
    header = ("round", "accuracy", "wrong labels left", "labels changed", "relabelled in this round")
    return chart, number_table("Every round", header, rows)


def noise_chart(files: RunFiles) -> tuple[Html, str] | None:
    """Return label noise before and after relabelling, a row per client that had wrong labels or got some; None
    where nobody knows the truth or no label was changed.

    `noise_after_by_client` of the rounds that relabelled has the steps between; runs from before it was stored show the
    first and the last rate alone.
    """
    verdicts, changes = files.verdicts(), []
    steps = [line["noise_after_by_client"] for line in files.lines if line.get("noise_after_by_client")]
    for client, did in files.relabelled.items():
        before, after = did.before, did.after
        if before is None or after is None or (did.n_wrong_before == 0 and did.n_changed == 0):
            continue
        between = tuple(step[client] for step in steps if client in step)
        rates = (before, *between, after)
        words = f"{percent(before, 0)} → {percent(after)}"
        told = " → ".join(percent(rate) for rate in ((before, *between) if between else rates))
        done = f"{count(did.n_repaired)} repaired, {count(did.n_harmed)} made wrong"
        tip = f"{called(client)}: wrong labels {told}; {done}"
        changes.append(Change(called(client), verdicts.get(client, ""), rates, words, tip))
    if not changes or not any(did.n_changed for did in files.relabelled.values()):
        return None
    changes.sort(key=lambda change: -change.rates[-1])
    described = "; ".join(f"{change.client} {change.words}" for change in changes[:12])
    chart = change_chart(
        changes,
        Axis("share of wrong labels", tick_percent, low=0.0),
        key="noise",
        title="Wrong labels of each client before and after relabelling",
        description=f"{described}.",
    )
    left_out = ""
    if len(changes) > MOST_ROWS:
        rest = [change.rates[-1] for change in changes[MOST_ROWS:]]
        left_out = (
            f"The {MOST_ROWS} with the most wrong labels left are drawn; the other {len(rest):,} end at "
            f"{percent(max(rest))} or less."
        )
    return chart, left_out


def shares_chart(files: RunFiles) -> tuple[Html, str] | None:
    """Return each client's weight in the average over the rounds; of many clients, each group's median and range."""
    if not files.shares:
        return None
    verdicts = files.verdicts()
    clients = list(dict.fromkeys(client for by_client in files.shares.values() for client in by_client))
    series = {k: tuple((t, shares[k]) for t, shares in sorted(files.shares.items()) if k in shares) for k in clients}
    if len(clients) <= MOST_LINES:
        lines = [
            Line(called(client), series[client], kind=_kind(verdicts.get(client)), is_thin=len(clients) > 12)
            for client in sorted(clients, key=lambda k: verdicts.get(k, ""))
        ]
        note = ""
    else:
        lines, note = (
            _group_lines(files.shares, verdicts),
            "Lines are medians over a group's clients; bands reach from the lowest to the highest.",
        )
    if not lines:
        return None
    ends = sorted(((line.points[-1][1], line.name) for line in lines), reverse=True)
    chart = line_chart(
        lines,
        Frame("weight in the average", tick_percent, percent, low=0.0, reference=1 / len(clients)),
        key="shares",
        title="Weight of each client in the average over the rounds",
        description="In the last round: " + "; ".join(f"{name} {percent(share)}" for share, name in ends[:12]) + ".",
    )
    return chart, note


def _kind(verdict: str | None) -> str:
    return {"clean": "clean", "noisy": "noisy"}.get(verdict or "", "")


def _group_lines(shares: Mapping[int, Mapping[str, float]], verdicts: Mapping[str, str]) -> list[Line]:
    lines = []
    for verdict in ("clean", "noisy", "not assessed"):
        points, band = [], []
        for t, by_client in sorted(shares.items()):
            values = [share for client, share in by_client.items() if verdicts.get(client) == verdict]
            if values:
                points.append((t, statistics.median(values)))
                band.append((t, min(values), max(values)))
        if points:
            lines.append(Line(f"{verdict} clients", tuple(points), tuple(band), kind=_kind(verdict)))
    return lines


def bytes_chart(files: RunFiles) -> tuple[Html, NumberTable] | None:
    """Return bytes sent by and to all clients over the rounds."""
    if not files.lines:
        return None
    up, down = (tuple((line["round"], float(line[key])) for line in files.lines) for key in ("bytes_up", "bytes_down"))
    chart = line_chart(
        [Line("from clients", up), Line("to clients", down)],
        Frame("bytes in a round, all clients together", size, size, low=0.0),
        key="bytes",
        title="Bytes sent in each round",
        description=f"From clients {size(sum(v for _, v in up))}, to clients {size(sum(v for _, v in down))} in all.",
    )
    rows = [
        (
            str(line["round"]),
            size(line["bytes_up"]),
            size(line["bytes_down"]),
            str(len(line.get("participants") or ())),
            str(len(line["failures"])),
        )
        for line in files.lines
    ]
    return chart, number_table(
        "Every round", ("round", "from clients", "to clients", "clients asked", "failures"), rows
    )
