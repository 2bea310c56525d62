"""What a person sees while a sweep goes on: a bar and the runs under way on a terminal, a line per run elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from fedsir.runs.progress import duration, end_live, print_line
from fedsir.sweeps.clock import SweepClock

if TYPE_CHECKING:
    from rich.console import Console

    from fedsir.sweeps.sweep import Job


class SweepLines:
    """One line per run that ends, for logs and pipes."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console, self._workers = console, workers
        self._n_ended = self._n_jobs = 0
        self._last_failure: str | None = None

    def began(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]]) -> None:
        self._clock = SweepClock(jobs, finished, self._workers)
        self._n_jobs, self._n_ended = len(jobs), len(finished)
        there = f", {len(finished)} finished before" if finished else ""
        print_line(self._console, f"{len(jobs)} run{'s' if len(jobs) != 1 else ''}{there}")

    def started(self, job: Job) -> None:
        self._clock.started(job)

    def round_done(self, job: Job, t: int, accuracy: float | None) -> None:
        del accuracy
        self._clock.round_done(job, t)

    def ended(self, job: Job, result: dict[str, Any] | None, failure: str | None) -> None:
        self._clock.ended(job)
        self._n_ended += 1
        print_line(self._console, self._line(job, result, failure))

    def close(self) -> None:
        """There is nothing to give back."""

    def _line(self, job: Job, result: dict[str, Any] | None, failure: str | None) -> str:
        head = f"{self._n_ended}/{self._n_jobs} {job.name}"
        if result is None:
            is_known, self._last_failure = failure == self._last_failure, failure
            return f"{head}: failed for the same reason" if is_known else f"{head}: failed: {failure}"
        return f"{head}: {result['accuracy']:.1%}, {duration(result['seconds'])}; {self.eta()} to go"

    def eta(self) -> str:
        left = self._clock.seconds_left()
        return "…" if left is None else duration(left)


class SweepTable(SweepLines):
    """The same lines above the runs under way, each with its round, for a person at a terminal."""

    def __init__(self, console: Console, workers: int) -> None:
        super().__init__(console, workers)
        self._under_way: dict[str, str] = {}
        self._live: Live | None = None

    def began(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]]) -> None:
        super().began(jobs, finished)
        self._live = Live(self._table(), console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def started(self, job: Job) -> None:
        super().started(job)
        self._under_way[job.name] = "starting"
        self._refresh()

    def round_done(self, job: Job, t: int, accuracy: float | None) -> None:
        super().round_done(job, t, accuracy)
        reached = "" if accuracy is None else f", {accuracy:.1%}"
        self._under_way[job.name] = f"round {t} of {job.config.rounds}{reached}"
        self._refresh()

    def ended(self, job: Job, result: dict[str, Any] | None, failure: str | None) -> None:
        self._under_way.pop(job.name, None)
        super().ended(job, result, failure)
        self._refresh()

    def close(self) -> None:
        """Give the terminal back, also when a sweep is interrupted."""
        if self._live is not None:
            end_live(self._live)
            self._live = None

    def _refresh(self) -> None:
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        caption = f"{self._n_ended} of {self._n_jobs} runs done, {self.eta()} to go"
        table = Table(box=None, pad_edge=False, show_header=False, caption=caption, caption_justify="left")
        for name, text in self._under_way.items():
            table.add_row(name, text)
        return table
