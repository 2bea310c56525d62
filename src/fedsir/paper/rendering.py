"""A filled table as text: Markdown, LaTeX, CSV, JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from fedsir.paper.results import Block, Filled, Line, Standing
from fedsir.runs.finished_runs import provenance_of
from fedsir.text_table import markdown_table

HEADER = ("method", "n", "ours", "sd", "paper", "gap", "diff.", "ident.", "label noise")
RUN_FIELDS = (
    *("method", "accuracy", "accuracy_half_width", "best_accuracy", "last_10_accuracy", "identification_accuracy"),
    *("noise_before", "noise_after", "bytes_up", "bytes_down", "seconds", "model_sha256"),
)


def legend(filled: Filled) -> str:
    """Return what the columns mean."""
    seeds = sorted({run.seed for run in filled.runs})
    over = f"seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"one seed ({seeds[0]}, n = 1)" if seeds else ""
    reference = next(v.title for v in filled.table.variants if v.name == filled.table.reference)
    return (
        f"Percent. Scale {filled.scale.name}: {filled.scale.note}; {over or 'no finished run'}. n: seeds. "
        "±: 95 % bootstrap over the test images (mean over the seeds). sd: standard deviation over the seeds. "
        f"gap: ours minus the paper's. diff.: to {reference}, * where the paired bootstrap over the same test images "
        "excludes zero. ident.: clients on the right side of the split. Label noise: of the clients that are noisy."
    )


def cells_of(line: Line, digits: int = 2) -> tuple[str, ...]:
    """Return a row as text, in the order of `HEADER`; accuracies with so many digits after the point."""
    of = _values(line)
    mark = "*" if of["is_different"] else ""
    change = f"{_percent(of['noise_before'], 1)} → {_percent(of['noise_after'], 1)}"
    return (
        line.title,
        str(len(line.runs)) if line.runs else "–",
        _with_half_width(of["accuracy"], of["half_width"], digits),
        _percent(of["seed_spread"], digits),
        _with_half_width(of["paper_accuracy"], of["paper_half_width"], digits),
        _points(of["gap"], digits),
        _points(of["difference"], digits) + mark,
        _percent(of["identification"], 0),
        "–" if of["noise_after"] is None else change,
    )


def heading(block: Block) -> str:
    """Return what sets a block apart."""
    return f"α = {block.alpha:g}, noise rate {block.noise_rate:g}"


def standing_line(filled: Filled, block: Block) -> str | None:
    """Return where the reference stands here, ours and the paper's; None where nothing can be compared."""
    name = filled.table.reference
    title = next(v.title for v in filled.table.variants if v.name == name)
    ours, theirs = block.standing(name, "ours"), block.standing(name, "paper")
    if ours is None or theirs is None:
        return None
    return f"{title} among the rows that both have: ours {_standing(ours)}; paper {_standing(theirs)}."


def markdown(filled: Filled) -> str:
    """Return the table for a document; percent throughout."""
    lines = [f"# {filled.table.title}: scale {filled.scale.name}", "", legend(filled), ""]
    for block in filled.blocks:
        lines += [f"## {heading(block)}", "", *markdown_table(HEADER, [cells_of(line) for line in block.lines]), ""]
        if (standing := standing_line(filled, block)) is not None:
            lines += [standing, ""]
    for made in provenance_of(run.folder for run in filled.runs):
        versions = ", ".join(f"{name} {version}" for name, version in made["versions"].items())
        code = f" (code {made['code_sha256'][:12]})" if made["code_sha256"] else ""
        lines += [f"Made with {versions}{code}; {made['cores']} cores of {made['processor']}, {made['device']}.", ""]
    return "\n".join(lines)


def latex(filled: Filled) -> str:
    """Return the paper's layout with our numbers; it needs booktabs. Bold: best, or not distinguishable from it."""
    rates = sorted({block.noise_rate for block in filled.blocks})
    lines = [
        r"% " + legend(filled),
        rf"\begin{{tabular}}{{cl{'c' * len(rates)}}}",
        r"\toprule",
        r"$\alpha$ & method & " + " & ".join(rf"{100 * rate:g}\%" for rate in rates) + r" \\",
    ]
    for alpha in dict.fromkeys(block.alpha for block in filled.blocks):
        by_rate = {block.noise_rate: block for block in filled.blocks if block.alpha == alpha}
        names = list(dict.fromkeys(line.title for block in by_rate.values() for line in block.lines))
        lines.append(r"\midrule")
        for i, title in enumerate(names):
            cells = [_latex_cell(by_rate[rate], title) if rate in by_rate else "--" for rate in rates]
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
    """Return everything: cells, where the reference stands, and where the runs came from."""
    name = filled.table.reference
    standings = [
        {"alpha": block.alpha, "noise_rate": block.noise_rate, "of": name, "ours": vars(ours), "paper": vars(theirs)}
        for block in filled.blocks
        if (ours := block.standing(name, "ours")) and (theirs := block.standing(name, "paper"))
    ]
    runs = [
        {"run": run.folder.name, "seed": run.seed} | {key: run.get(key) for key in RUN_FIELDS} for run in filled.runs
    ]
    return {
        "table": filled.table.name,
        "scale": filled.scale.name,
        "note": filled.scale.note,
        "cells": list(_records(filled)),
        "standings": standings,
        "provenance": provenance_of(run.folder for run in filled.runs),
        "runs": runs,
    }


def _records(filled: Filled) -> Iterator[dict[str, Any]]:
    for block in filled.blocks:
        place: dict[str, Any] = {"table": filled.table.name, "scale": filled.scale.name}
        place |= {"alpha": block.alpha, "noise_rate": block.noise_rate}
        yield from (place | {"method": line.name} | _values(line) for line in block.lines)


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
