"""What a person sees while a sweep goes on: a bar and the runs under way on a terminal, a line per run elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from fedsir.experiment.progress import duration, print_line

if TYPE_CHECKING:
    from rich.console import Console

    from fedsir.experiment.sweep import Job


class SweepClock:
    """Estimates the time a sweep still takes, from the runs of the same method that are finished or under way."""

    def __init__(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]], workers: int) -> None:
        self._workers = workers
        self._open = {job.name: job for job in jobs if job.name not in finished}
        self._shares = dict.fromkeys(self._open, 0.0)  # of each run's rounds that are done
        self._began: dict[str, tuple[float, float]] = {}  # when a run started here, and with which share done
        self._seconds: dict[str, list[float]] = {}  # whole runs, by kind

    def started(self, job: Job) -> None:
        self._began[job.name] = (time.monotonic(), self._shares[job.name])

    def round_done(self, job: Job, t: int) -> None:
        share = (t + 1) / (job.config.rounds + 1)
        if self._shares[job.name] == 0.0 and t > 0:  # goes on with an earlier attempt
            self._began[job.name] = (time.monotonic(), share)
        self._shares[job.name] = share

    def ended(self, job: Job) -> None:
        if (pace := self._whole_run(job.name)) is not None:
            self._seconds.setdefault(_kind(job), []).append(pace)
        self._open.pop(job.name, None)

    def seconds_left(self) -> float | None:
        """Return the estimate, None before anything is known."""
        under_way = {name: pace for name in self._open if (pace := self._whole_run(name)) is not None}
        known = [pace for paces in self._seconds.values() for pace in paces] + list(under_way.values())
        if not known:
            return None
        usual = sum(known) / len(known)
        total = 0.0
        for name, job in self._open.items():
            same = self._seconds.get(_kind(job))
            whole = under_way.get(name) or (sum(same) / len(same) if same else usual)
            total += whole * (1 - self._shares[name])
        return total / min(self._workers, len(self._open)) if self._open else 0.0

    def _whole_run(self, name: str) -> float | None:
        """Return how long the whole run takes at the pace of what was done here."""
        began, share = self._began.get(name, (0.0, 0.0))
        done = self._shares[name] - share
        return (time.monotonic() - began) / done if name in self._began and done > 0 else None


def _kind(job: Job) -> str:
    return f"{job.config.method.name} {job.config.rounds} {job.config.data.n_train}"


class SweepLines:
    """One line per run that ends, for logs and pipes."""

    def __init__(self, console: Console, workers: int) -> None:
        self._console, self._workers = console, workers
        self._n_ended = self._n_jobs = 0

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
            return f"{head}: failed: {failure}"
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
            self._live.stop()
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
