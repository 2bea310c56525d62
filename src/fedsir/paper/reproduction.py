"""A table, or a part of it: the runs it needs, and the files it becomes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedsir.errors import RunFolderError
from fedsir.paper import rendering
from fedsir.paper.results import Filled, fill
from fedsir.paper.scales import Scale
from fedsir.paper.tables import Cell, Selection, Table, cells
from fedsir.runs.run_folder import RunFolder, usable_folder
from fedsir.sweeps.sweep import Job, jobs_for


@dataclass(frozen=True)
class Reproduction:
    """A table, or a part of it, and the runs behind it; runs lie in `out`/runs, named by their settings."""

    table: Table
    scale: Scale
    selection: Selection
    cells: tuple[Cell, ...]
    jobs: tuple[Job, ...]
    out: Path

    @classmethod
    def of(cls, table: Table, scale: Scale, selection: Selection, out: Path) -> Reproduction:
        found = cells(table, scale, selection)
        jobs = jobs_for([config for cell in found for config in cell.configs], out / "runs")
        return cls(table, scale, selection, tuple(found), tuple(jobs), out)

    def filled(self) -> Filled:
        """Return the table as far as its runs are finished."""
        return fill(self.table, self.scale, self.cells, {job.config.sha256: job for job in self.jobs})

    def everything(self) -> Filled:
        """Return the table with every run that is finished here, also of other commands: files show all there is."""
        return Reproduction.of(self.table, self.scale, self._all_there_is(), self.out).filled()

    def of_what_is_there(self) -> Reproduction:
        """Return the same with all runs that are here, as far as the selection leaves it open."""
        return Reproduction.of(self.table, self.scale, self.selection.or_else(self._all_there_is()), self.out)

    def _all_there_is(self) -> Selection:
        return self.selection.widened(self.table, self.scale, _seeds_in(self.out / "runs"))

    def write(self) -> list[Path]:
        """Write Markdown, LaTeX, CSV, JSON, and an SVG of accuracy over rounds for each condition."""
        usable_folder(self.out)
        filled = self.everything()
        stem = f"{self.table.name}-{self.scale.name}"
        folder = RunFolder(self.out)
        texts = {"md": rendering.markdown(filled), "tex": rendering.latex(filled), "csv": rendering.as_csv(filled)}
        for ending, text in texts.items():
            folder.write(f"{stem}.{ending}", text.encode())
        folder.write_json(f"{stem}.json", rendering.as_json(filled))
        return [self.out / f"{stem}.{ending}" for ending in (*texts, "json")] + self._write_curves(filled, stem)

    def _write_curves(self, filled: Filled, stem: str) -> list[Path]:
        from fedsir.paper.charts import accuracy_over_rounds

        written = []
        for block in filled.blocks:
            curves = {line.title: [_curve(run.folder) for run in line.runs] for line in block.lines if line.runs}
            if curves:
                name = f"{stem}-{block.condition.word}.svg"
                RunFolder(self.out).write(name, accuracy_over_rounds(curves))
                written.append(self.out / name)
        return written


def _seeds_in(folder: Path) -> tuple[int, ...]:
    """Return the seeds of the runs in a folder, whatever they are runs of."""
    found = set()
    for path in folder.glob("*/config.toml"):
        with contextlib.suppress(RunFolderError):  # not readable, so no run of ours
            found.add(RunFolder(path.parent).stored_config().get("seed", 0))
    return tuple(seed for seed in found if isinstance(seed, int))


def _curve(folder: Path) -> tuple[Sequence[int], Sequence[float]]:
    lines = [line for line in RunFolder(folder).metrics() if line.get("accuracy") is not None]
    return [line["round"] for line in lines], [line["accuracy"] for line in lines]
