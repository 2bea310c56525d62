"""How long a sweep still takes, judged by the rounds that are done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedsir.runs.progress import Pace

if TYPE_CHECKING:
    from fedsir.sweeps.sweep import Job


class SweepClock:
    """Estimates the time a sweep still takes, from the runs of the same method that are finished or under way."""

    def __init__(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]], workers: int) -> None:
        self._workers = workers
        self._open = {job.name: job for job in jobs if job.name not in finished}
        self._under_way: dict[str, Pace] = {}
        self._ended: dict[str, list[Pace]] = {}  # by kind

    def started(self, job: Job) -> None:
        self._under_way[job.name] = Pace(job.config.rounds)

    def round_done(self, job: Job, t: int) -> None:
        self._under_way[job.name].round_done(t)

    def ended(self, job: Job) -> None:
        self._ended.setdefault(_kind(job), []).append(self._under_way.pop(job.name))
        self._open.pop(job.name)

    def seconds_left(self) -> float | None:
        """Return the estimate, None before anything is known."""
        by_kind = {kind: list(paces) for kind, paces in self._ended.items()}
        for name, pace in self._under_way.items():
            by_kind.setdefault(_kind(self._open[name]), []).append(pace)
        usual = _mean([pace for paces in by_kind.values() for pace in paces])
        if usual is None:
            return None if self._open else 0.0
        total = 0.0
        for name, job in self._open.items():
            left = self._under_way[name].left if name in self._under_way else None
            total += left if left is not None else _mean(by_kind.get(_kind(job), [])) or usual
        return total / min(self._workers, len(self._open)) if self._open else 0.0


def _mean(paces: Sequence[Pace]) -> float | None:
    """Return the seconds of a whole run, runs weighed by the share of them that was seen."""
    known = [(whole, pace.n_timed / pace.n_rounds) for pace in paces if (whole := pace.whole) is not None]
    weight = sum(share for _, share in known)
    return sum(whole * share for whole, share in known) / weight if weight > 0 else None


def _kind(job: Job) -> str:
    return f"{job.config.method.name} {job.config.rounds} {job.config.data.n_train}"
