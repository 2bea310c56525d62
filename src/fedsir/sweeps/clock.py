"""How long a sweep still takes, judged by the rounds that are done."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsir.sweeps.sweep import Job


@dataclass
class _Pace:
    """When a run started here, and which rounds were done when, first and last."""

    n_rounds: int
    began: float
    first: tuple[int, float] | None = None
    last: tuple[int, float] | None = None

    def round_done(self, t: int) -> None:
        self.last = (t, time.monotonic())
        self.first = self.first or self.last

    @property
    def per_round(self) -> float | None:
        """Seconds of a round after the first that was told; None before there is one."""
        if self.first is None or self.last is None or self.last[0] == self.first[0]:
            return None
        return (self.last[1] - self.first[1]) / (self.last[0] - self.first[0])

    @property
    def whole(self) -> float | None:
        """Seconds of the whole run; round 0, in which some methods train long and others not at all, as it was."""
        if self.per_round is None or self.first is None:
            return None
        t, when = self.first
        start = when - self.began if t == 0 else self.per_round  # else it goes on with an earlier attempt
        return start + self.n_rounds * self.per_round

    @property
    def left(self) -> float | None:
        """Seconds until the last round is done."""
        return None if self.per_round is None or self.last is None else self.per_round * (self.n_rounds - self.last[0])

    @property
    def share(self) -> float:
        """Share of the rounds that were seen: how far to trust it."""
        return 0.0 if self.first is None or self.last is None else (self.last[0] - self.first[0]) / self.n_rounds


class SweepClock:
    """Estimates the time a sweep still takes, from the runs of the same method that are finished or under way."""

    def __init__(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]], workers: int) -> None:
        self._workers = workers
        self._open = {job.name: job for job in jobs if job.name not in finished}
        self._under_way: dict[str, _Pace] = {}
        self._ended: dict[str, list[_Pace]] = {}  # by kind

    def started(self, job: Job) -> None:
        self._under_way[job.name] = _Pace(job.config.rounds, time.monotonic())

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


def _mean(paces: Sequence[_Pace]) -> float | None:
    """Return the seconds of a whole run, runs weighed by the share of them that was seen."""
    known = [(whole, pace.share) for pace in paces if (whole := pace.whole) is not None]
    weight = sum(share for _, share in known)
    return sum(whole * share for whole, share in known) / weight if weight > 0 else None


def _kind(job: Job) -> str:
    return f"{job.config.method.name} {job.config.rounds} {job.config.data.n_train}"
