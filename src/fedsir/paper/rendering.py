"""A filled table as text: Markdown, LaTeX, CSV, JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from fedsir.data.noise_rate import noise_rate_text
from fedsir.paper.gain import gain_of
from fedsir.paper.results import Block, Filled, Line, Standing
from fedsir.paper.tables import Table
from fedsir.runs.finished_runs import provenance_of
from fedsir.text_table import markdown_table

HEADER = ("method", "n", "ours", "sd", "paper", "gap", "diff.", "ident.", "label noise")
# Of a table that is not the paper's.
OWN_HEADER = ("method", "n", "ours", "sd", "diff.", "ident.", "label noise", "rate error")
OF_THE_PAPER = ("paper_accuracy", "paper_half_width", "gap")
RUN_FIELDS = (
    *("method", "accuracy", "accuracy_half_width", "best_accuracy", "last_10_accuracy", "identification_accuracy"),
    *("noise_before", "noise_after", "bytes_up", "bytes_down", "seconds", "model_sha256"),
)


def header(table: Table) -> tuple[str, ...]:
    """Return the heads of a table's columns."""
    return OWN_HEADER if table.is_own else HEADER


def legend(filled: Filled) -> str:
    """Return what the columns mean."""
    seeds = sorted({run.seed for run in filled.runs})
    over = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"one seed ({seeds[0]}, n = 1)" if seeds else ""
    table = filled.table
    gap = "" if table.is_own else "gap: ours minus the paper's. "
    base = f"the best of {_rivals(table)}" if table.rivals else _title(table, table.reference)
    rate_error = (
        " Rate error: of the estimated noise rates of clients, mean over them (and largest), in points."
        if table.is_own
        else ""
    )
    return (
        f"Percent. Scale {filled.scale.name}: {filled.scale.note}; {over or 'no finished run'}. n: seeds. "
        "±: 95 % bootstrap over the test images (mean over the seeds). sd: standard deviation over the seeds. "
        f"{gap}diff.: to {base}, * where the paired bootstrap over the same test images "
        "excludes zero. ident.: clients on the right side of the split. Label noise: of the clients that are noisy."
        f"{rate_error}"
    )


def cells_of(table: Table, line: Line, digits: int = 2) -> tuple[str, ...]:
    """Return a row as text, in the order of the header; accuracies with so many digits after the point."""
    of = _values(line)
    mark = "*" if of["is_different"] else ""
    change = f"{_percent(of['noise_before'], 1)} → {_percent(of['noise_after'], 1)}"
    error = line.noise_rate_error
    cells = {
        "method": line.title,
        "n": str(len(line.runs)) if line.runs else "–",
        "ours": _with_half_width(of["accuracy"], of["half_width"], digits),
        "sd": _percent(of["seed_spread"], digits),
        "paper": _with_half_width(of["paper_accuracy"], of["paper_half_width"], digits),
        "gap": _points(of["gap"], digits),
        "diff.": _points(of["difference"], digits) + mark,
        "ident.": _percent(of["identification"], 0),
        "label noise": "–" if of["noise_after"] is None else change,
        "rate error": "–" if error is None else f"{_percent(error[0], 1)} ({_percent(error[1], 1)})",
    }
    return tuple(cells[name] for name in header(table))


def heading(block: Block) -> str:
    """Return what sets a block apart."""
    return block.condition.title


def closing_line(filled: Filled, block: Block) -> str | None:
    """Return where the reference stands here, ours and the paper's, or what it gains; None where nothing compares."""
    if filled.table.is_own:
        return gain_line(filled, block)
    name = filled.table.reference
    title = _title(filled.table, name)
    ours, theirs = block.standing(name, "ours"), block.standing(name, "paper")
    if ours is None or theirs is None:
        return None
    return f"{title} among the rows that both have: ours {_standing(ours)}; paper {_standing(theirs)}."


def gain_line(filled: Filled, block: Block | None = None) -> str | None:
    """Return what the reference gains in a block, or in all of them together; None for the paper's tables."""
    table = filled.table
    gain = gain_of(table, filled.blocks if block is None else [block])
    if gain is None:
        return None
    over = "" if block else f" on average over {gain.n_conditions} condition(s)"
    clauses = [f"{_title(table, table.reference)} minus {_title(table, table.rivals[0])}: {_points(gain.mean)}{over}"]
    if gain.gap_closed is not None and gain.gap_closed > 0:  # what is behind closes nothing
        clauses.append(f"{gain.gap_closed:.0%} of the gap to clean labels closed")
    if gain.worst is not None and block is None:
        clauses.append(f"worst to the best of {_rivals(table)}: {_points(gain.worst)} ({gain.worst_condition})")
    return "; ".join(clauses) + "."


def markdown(filled: Filled) -> str:
    """Return the table for a document; percent throughout."""
    lines = [f"# {filled.table.title}: scale {filled.scale.name}", "", legend(filled), ""]
    for block in filled.blocks:
        rows = [cells_of(filled.table, line) for line in block.lines]
        lines += [f"## {heading(block)}", "", *markdown_table(header(filled.table), rows), ""]
        if (line := closing_line(filled, block)) is not None:
            lines += [line, ""]
    if (gain := gain_line(filled)) is not None:
        lines += ["## In all", "", gain, ""]
    for made in provenance_of(run.folder for run in filled.runs):
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        code = f" (code {made['code_sha256'][:12]})" if made["code_sha256"] else ""
        lines += [f"Made with {versions}{code}; {made['cores']} cores of {made['processor']}, {made['device']}.", ""]
    return "\n".join(lines)


def latex(filled: Filled) -> str:
    """Return the paper's layout with our numbers; it needs booktabs. Bold: best, or not distinguishable from it."""
    by_noise = {block.condition.order: block.condition.percent for block in filled.blocks}
    columns = sorted(by_noise)
    lines = [
        r"% " + legend(filled),
        rf"\begin{{tabular}}{{cl{'c' * len(columns)}}}",
        r"\toprule",
        r"$\alpha$ & method & " + " & ".join(by_noise[order] for order in columns) + r" \\",
    ]
    for alpha in dict.fromkeys(block.condition.alpha for block in filled.blocks):
        blocks = {block.condition.order: block for block in filled.blocks if block.condition.alpha == alpha}
        names = list(dict.fromkeys(line.title for block in blocks.values() for line in block.lines))
        lines.append(r"\midrule")
        for i, title in enumerate(names):
            cells = [_latex_cell(blocks[order], title) if order in blocks else "--" for order in columns]
            lines.append(" & ".join([f"{alpha:g}" if i == 0 else "", title, *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def as_csv(filled: Filled) -> str:
    """Return one line per cell; accuracies in [0, 1]."""
    text = io.StringIO()
    records = list(_records(filled))
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json(filled: Filled) -> dict[str, Any]:
    """Return everything: cells, where the reference stands or what it gains, and where the runs came from."""
    name, is_own = filled.table.reference, filled.table.is_own
    standings = [
        _place(block) | {"of": name, "ours": vars(ours), "paper": vars(theirs)}
        for block in filled.blocks
        if (ours := block.standing(name, "ours")) and (theirs := block.standing(name, "paper"))
    ]
    gain = gain_of(filled.table, filled.blocks)
    gains = [
        {"condition": block.condition.title, "mean": here.mean, "gap_closed": here.gap_closed}
        for block in filled.blocks
        if (here := gain_of(filled.table, [block]))
    ]
    fields = (*RUN_FIELDS, "noise_rate_error") if is_own else RUN_FIELDS
    runs = [{"run": run.folder.name, "seed": run.seed} | {key: run.get(key) for key in fields} for run in filled.runs]
    return {
        "table": filled.table.name,
        "scale": filled.scale.name,
        "note": filled.scale.note,
        "cells": list(_records(filled)),
        **({"gain": gain and vars(gain), "gains": gains} if is_own else {"standings": standings}),
        "provenance": provenance_of(run.folder for run in filled.runs),
        "runs": runs,
    }


def _records(filled: Filled) -> Iterator[dict[str, Any]]:
    for block in filled.blocks:
        place: dict[str, Any] = {"table": filled.table.name, "scale": filled.scale.name}
        for line in block.lines:
            if not filled.table.is_own:
                yield place | _place(block) | {"method": line.name} | _values(line)
                continue
            values = {name: value for name, value in _values(line).items() if name not in OF_THE_PAPER}
            mean, largest = line.noise_rate_error or (None, None)
            errors = {"noise_rate_error": mean, "largest_noise_rate_error": largest}
            where = {"condition": block.condition.title, "noise": block.condition.noise}
            yield place | where | _place(block) | {"method": line.name} | values | errors


def _place(block: Block) -> dict[str, Any]:
    """Return α and noise rate; a range of rates as a command line takes it."""
    rate = block.condition.noise_rate
    return {"alpha": block.condition.alpha, "noise_rate": noise_rate_text(rate) if isinstance(rate, tuple) else rate}


def _values(line: Line) -> dict[str, Any]:
    """Return the numbers of a row, None where there is none."""
    ours, paper = line.ours, line.paper
    return {
        "seeds": " ".join(map(str, ours.seeds)) if ours else None,
        "accuracy": ours.accuracy if ours else None,
        "half_width": ours.half_width if ours else None,
        "seed_spread": ours.seed_spread if ours else None,
        "paper_accuracy": paper.accuracy if paper else None,
        "paper_half_width": paper.half_width if paper else None,
        "gap": line.gap,
        "difference": ours.difference if ours else None,
        "is_different": ours.is_different if ours else None,
        "is_best": line.is_best,
        "identification": ours.identification if ours else None,
        "noise_before": ours.noise_before if ours else None,
        "noise_after": ours.noise_after if ours else None,
    }


def _title(table: Table, name: str) -> str:
    return next(variant.title for variant in table.variants if variant.name == name)


def _rivals(table: Table) -> str:
    *others, last = (_title(table, name) for name in table.rivals)
    return f"{', '.join(others)} and {last}"


def _percent(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


def _with_half_width(value: float | None, half_width: float | None, digits: int) -> str:
    return "–" if value is None else f"{_percent(value, digits)} ± {_percent(half_width, digits)}"


def _points(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{100 * value:+.{digits}f}".replace("-", "−")


def _standing(standing: Standing) -> str:
    return f"rank {standing.rank} of {standing.n_methods}, {_points(standing.margin)} to the best other"


def _latex_cell(block: Block, title: str) -> str:
    line = next((line for line in block.lines if line.title == title), None)
    if line is None or line.ours is None:
        return "--"
    text = rf"{100 * line.ours.accuracy:.2f}$\pm${100 * line.ours.half_width:.2f}"
    return rf"\textbf{{{text}}}" if line.is_best else text
