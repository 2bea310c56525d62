"""A table of the paper filled from finished runs: ours, theirs, the gap, and which differences hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsir.paper.conditions import Condition
from fedsir.paper.numbers import Printed, printed
from fedsir.paper.scales import Scale
from fedsir.paper.tables import Cell, Table
from fedsir.paper.variants import REFERENCES
from fedsir.runs.result import RunResult, load_run
from fedsir.sweeps.comparison import Row, difference_between, summary
from fedsir.sweeps.sweep import Job

# Rows that show what is possible; no method is ranked against them.
UNRANKED = frozenset(variant.name for variant in REFERENCES)


@dataclass(frozen=True)
class Line:
    """A row of a table under one condition.

    Attributes
    ----------
    runs : the finished ones, by seed
    ours : None where no run is finished
    paper : None where the paper prints nothing, or the runs are on other data
    is_best : whether no other method's accuracy is above it by more than the test images support
    """

    name: str
    title: str
    runs: tuple[RunResult, ...]
    ours: Row | None
    paper: Printed | None
    is_best: bool

    @property
    def gap(self) -> float | None:
        """Return ours minus theirs."""
        return None if self.ours is None or self.paper is None else self.ours.accuracy - self.paper.accuracy

    @property
    def noise_rate_error(self) -> tuple[float, float] | None:
        """Return the error of estimated noise rates: mean over clients and seeds, and the largest of all."""
        found = [error for run in self.runs if (error := run.get("noise_rate_error")) is not None]
        if not found:
            return None
        return sum(error["mean"] for error in found) / len(found), max(error["max"] for error in found)


@dataclass(frozen=True)
class Standing:
    """Where a method stands among others.

    Attributes
    ----------
    rank : 1 is the most accurate
    margin : its accuracy minus that of the best other method
    """

    rank: int
    n_methods: int
    margin: float


@dataclass(frozen=True)
class Block:
    """All rows of a table under one condition."""

    condition: Condition
    lines: tuple[Line, ...]

    def line(self, name: str) -> Line | None:
        """Return the row of that name."""
        return next((line for line in self.lines if line.name == name), None)

    def standing(self, name: str, side: str) -> Standing | None:
        """Return the rank and margin of a method, of "ours" or "paper", among the methods that both sides have.

        Only among rows with the same seeds: means over others differ by luck.
        """
        seeds = next((line.ours.seeds for line in self.lines if line.name == name and line.ours), None)
        known = {
            line.name: value.accuracy
            for line in self.lines
            if line.name not in UNRANKED
            and (line.ours and line.paper and line.ours.seeds == seeds)
            and (value := getattr(line, side))
        }
        others = [accuracy for other, accuracy in known.items() if other != name]
        if name not in known or not others:
            return None
        rank = 1 + sum(accuracy > known[name] for accuracy in others)
        return Standing(rank, len(known), known[name] - max(others))


@dataclass(frozen=True)
class Filled:
    """A table with what was measured."""

    table: Table
    scale: Scale
    blocks: tuple[Block, ...]

    @property
    def runs(self) -> list[RunResult]:
        """Return every run behind the table, once."""
        found = {run.folder: run for block in self.blocks for line in block.lines for run in line.runs}
        return list(found.values())


def fill(table: Table, scale: Scale, cells: Sequence[Cell], jobs_by_config: dict[str, Job]) -> Filled:
    """Return the table with a block per condition that has runs; jobs are found by the hash of their settings.

    A row without noise stands beside every condition of its α, and alone, at rate 0, where there is nothing else.
    """
    blocks = []
    for alpha in dict.fromkeys(cell.condition.alpha for cell in cells):
        found = [(cell, _finished(cell, jobs_by_config)) for cell in cells if cell.condition.alpha == alpha]
        without_noise = Condition(alpha, None)
        measured = dict.fromkeys(cell.condition for cell, runs in found if runs)
        conditions = [condition for condition in measured if condition != without_noise]
        for condition in conditions or ([Condition(alpha, 0.0)] if measured else []):
            rows = {
                cell.variant.name: (cell.variant.title, runs)
                for cell, runs in found
                if cell.condition in (condition, without_noise)
            }
            blocks.append(_block(table, scale, condition, rows))
    return Filled(table, scale, tuple(blocks))


def _finished(cell: Cell, jobs_by_config: dict[str, Job]) -> list[RunResult]:
    jobs = [jobs_by_config[config.sha256] for config in cell.configs]
    return [load_run(job.folder) for job in jobs if job.result() is not None]


def _block(table: Table, scale: Scale, condition: Condition, rows: dict[str, tuple[str, list[RunResult]]]) -> Block:
    base = _base(table, {name: runs for name, (_, runs) in rows.items()})
    ours = {name: summary(runs, base) if runs else None for name, (_, runs) in rows.items()}
    unranked = UNRANKED.difference(table.rivals)
    ranked = {name: row for name, row in ours.items() if row is not None and name not in unranked}
    top = max(ranked, key=lambda name: ranked[name].accuracy) if ranked else None
    lines = []
    for name, (title, runs) in rows.items():
        is_printed = scale.is_comparable and condition.is_plain
        theirs = printed(table.name, condition.alpha, name, condition.noise_rate) if is_printed else None
        is_best = top is not None and name in ranked and _is_level(name, top, runs, rows[top][1])
        lines.append(Line(name, title, tuple(runs), ours[name], theirs, is_best))
    return Block(condition, tuple(lines))


def _base(table: Table, runs_by_name: dict[str, list[RunResult]]) -> list[RunResult]:
    """Return the runs that all others are compared with: the reference's, or those of its best rival.

    Rivals are judged by the seeds that all of them have: means over others differ by luck.
    """
    candidates = [runs for name in table.rivals or (table.reference,) if (runs := runs_by_name.get(name))]
    shared = set.intersection(*({run.seed for run in runs} for runs in candidates)) if candidates else set()

    def accuracy(runs: list[RunResult]) -> float:
        counted = [run["accuracy"] for run in runs if run.seed in shared or not shared]
        return float(sum(counted) / len(counted))

    return max(candidates, key=accuracy, default=[])


def _is_level(name: str, top: str, runs: Sequence[RunResult], best: Sequence[RunResult]) -> bool:
    if name == top:
        return True
    difference = difference_between(best, runs)
    return difference is not None and not difference.is_significant
