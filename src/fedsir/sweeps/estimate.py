"""How long the runs of a sweep would take on one core, before any of them is run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedsir.data.public import HELD_OUT
from fedsir.runs.estimate import plan_run

if TYPE_CHECKING:
    from fedsir.sweeps.sweep import Job

# Settings that change who holds which labels, not how much work there is.
WITHOUT_COST = ("alpha", "noise", "noise_rate", "noise_draw", "noisy_clients", "partition", "min_samples")


def estimate_jobs(
    jobs: Sequence[Job], *, data_dir: Path | None = None, download: bool = False
) -> dict[str, float | None]:
    """Return job name → seconds on one worker, less what is done of a run that has begun; None for finished ones.

    Runs with equal work are timed once.
    """
    seconds_by_work: dict[str, float] = {}
    estimates: dict[str, float | None] = {}
    for job in jobs:
        has_begun = job.folder.exists()
        if has_begun and job.result() is not None:
            estimates[job.name] = None
            continue
        work = _work(job)
        if work not in seconds_by_work:
            plan = plan_run(job.config, workers=1, data_dir=data_dir, download=download)
            seconds_by_work[work] = plan["estimate"]["seconds"]
        estimates[job.name] = seconds_by_work[work] * (1 - (job.share_done() if has_begun else 0.0))
    return estimates


def time_in_all(seconds: Sequence[float], workers: int) -> float:
    """Return how long runs of so many seconds on one worker take: one at a time each, or several workers on each."""
    if not seconds:
        return 0.0
    n_at_once = min(workers, len(seconds))
    free_at = [0.0] * n_at_once
    for each in seconds:  # in their order, as a worker gets free
        first = min(range(n_at_once), key=free_at.__getitem__)
        free_at[first] += each / (workers // n_at_once)
    return max(free_at)


def _work(job: Job) -> str:
    tree = job.config.tree()
    tree.pop("seed")
    tree["data"] = {key: value for key, value in tree["data"].items() if key not in WITHOUT_COST}
    if tree["data"].get("public") != HELD_OUT:  # only these are taken from the clients
        tree["data"].pop("public", None)
    tree["method"] = {key: tree["method"][key] for key in ("epochs", "batch_size")}  # all that an estimate reads of it
    return json.dumps(tree, sort_keys=True)
