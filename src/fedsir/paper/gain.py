"""What a table's own row gains over the method it builds on, and where it stands worst."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedsir.paper.results import Block, Line
from fedsir.paper.tables import Table
from fedsir.paper.variants import ALL_CLEAN


@dataclass(frozen=True)
class Gain:
    """The reference row against the first of its rivals, over the conditions where both have a seed in common.

    Attributes
    ----------
    mean : difference of their accuracies, mean over the conditions
    n_conditions : how many
    gap_closed : that difference as a share of what clean labels would bring, both summed over the conditions; None
        where clean labels bring nothing, or were not run
    worst : the smallest difference to the best of all rivals; None where none of them has runs
    worst_condition : where that is
    """

    mean: float
    n_conditions: int
    gap_closed: float | None
    worst: float | None
    worst_condition: str | None


def gain_of(table: Table, blocks: Sequence[Block]) -> Gain | None:
    """Return what the table's reference row gains there; None for a table without rivals, or where nothing compares."""
    if not table.rivals:
        return None
    gains, gained, possible, differences = [], 0.0, 0.0, []
    for block in blocks:
        ours, theirs, clean = (block.line(name) for name in (table.reference, table.rivals[0], ALL_CLEAN))
        if (pair := _means(ours, theirs)) is not None:
            gains.append(pair[0] - pair[1])
        if (three := _means(ours, theirs, clean)) is not None:
            gained, possible = gained + three[0] - three[1], possible + three[2] - three[1]
        if ours and ours.ours and ours.ours.difference is not None:
            differences.append((ours.ours.difference, block.condition.title))
    if not gains:
        return None
    worst, where = min(differences, default=(None, None))
    return Gain(sum(gains) / len(gains), len(gains), gained / possible if possible > 0 else None, worst, where)


def _means(*lines: Line | None) -> list[float] | None:
    """Return the mean accuracy of each row over the seeds that all of them have; None where there is none."""
    by_seed = [{run.seed: float(run["accuracy"]) for run in line.runs} if line else {} for line in lines]
    shared = set.intersection(*(set(found) for found in by_seed))
    return [sum(found[seed] for seed in shared) / len(shared) for found in by_seed] if shared else None
