"""A table of the paper filled from finished runs: ours, theirs, the gap, and which differences hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """A row of a table at one α and one noise rate.

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
    """All rows of a table at one α and one noise rate."""

    alpha: float
    noise_rate: float
    lines: tuple[Line, ...]

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
    """A table of the paper with what was measured."""

    table: Table
    scale: Scale
    blocks: tuple[Block, ...]

    @property
    def runs(self) -> list[RunResult]:
        """Return every run behind the table, once."""
        found = {run.folder: run for block in self.blocks for line in block.lines for run in line.runs}
        return list(found.values())


def fill(table: Table, scale: Scale, cells: Sequence[Cell], jobs_by_config: dict[str, Job]) -> Filled:
    """Return the table with a block per α and noise rate that has runs; jobs are found by the hash of their settings.

    A row without noise stands beside every noise rate of its α, and alone, at rate 0, where there is nothing else.
    """
    blocks = []
    for alpha in dict.fromkeys(cell.alpha for cell in cells):
        found = [(cell, _finished(cell, jobs_by_config)) for cell in cells if cell.alpha == alpha]
        measured = dict.fromkeys(cell.noise_rate for cell, runs in found if runs)
        noise_rates = [rate for rate in measured if rate is not None]
        for noise_rate in noise_rates or ([0.0] if measured else []):
            rows = {
                cell.variant.name: (cell.variant.title, runs)
                for cell, runs in found
                if cell.noise_rate in (noise_rate, None)
            }
            blocks.append(_block(table, scale, alpha, noise_rate, rows))
    return Filled(table, scale, tuple(blocks))


def _finished(cell: Cell, jobs_by_config: dict[str, Job]) -> list[RunResult]:
    jobs = [jobs_by_config[config.sha256] for config in cell.configs]
    return [load_run(job.folder) for job in jobs if job.result() is not None]


def _block(
    table: Table, scale: Scale, alpha: float, noise_rate: float, rows: dict[str, tuple[str, list[RunResult]]]
) -> Block:
    base = rows.get(table.reference, ("", []))[1]
    ours = {name: summary(runs, base) if runs else None for name, (_, runs) in rows.items()}
    ranked = {name: row for name, row in ours.items() if row is not None and name not in UNRANKED}
    top = max(ranked, key=lambda name: ranked[name].accuracy) if ranked else None
    lines = []
    for name, (title, runs) in rows.items():
        theirs = printed(table.name, alpha, name, noise_rate) if scale.is_comparable else None
        is_best = top is not None and name in ranked and _is_level(name, top, runs, rows[top][1])
        lines.append(Line(name, title, tuple(runs), ours[name], theirs, is_best))
    return Block(alpha, noise_rate, tuple(lines))


def _is_level(name: str, top: str, runs: Sequence[RunResult], best: Sequence[RunResult]) -> bool:
    if name == top:
        return True
    difference = difference_between(best, runs)
    return difference is not None and not difference.is_significant
