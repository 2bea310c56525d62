"""Finished runs side by side: what each method reached, over seeds, and which differences the test images support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.errors import ConfigError, RunFolderError, did_you_mean
from fedsir.evaluate.reports import Report
from fedsir.evaluate.statistics import Difference, paired_difference
from fedsir.experiment.finished_runs import FinishedRun, load_runs


@dataclass(frozen=True)
class Row(Report):
    """One method with one choice of settings, over the seeds that were run.

    Attributes
    ----------
    method : its name
    settings : those that tell this row from others of the same method, as "key=value"
    seeds : of the runs behind it
    accuracy : mean over the seeds
    seed_spread : standard deviation over the seeds (n - 1); None with one seed
    half_width : 95 % bootstrap half-width over the test images, mean over the seeds: nothing about other seeds
    difference : accuracy minus that of the row it is compared with, over the seeds both have; None where there are none
    is_different : whether the paired bootstrap over the same test images excludes zero; None without `difference`
    identification, noise_before, noise_after : means over the seeds; None where undefined
    """

    method: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    accuracy: float
    seed_spread: float | None
    half_width: float
    difference: float | None
    is_different: bool | None
    identification: float | None
    noise_before: float | None
    noise_after: float | None


def compare(folders: Sequence[Path], only: Mapping[str, Any] | None = None, against: str | None = None) -> list[Row]:
    """Return one row per method and settings, in the order in which they are first named.

    Parameters
    ----------
    folders : of runs, or of run folders; of the latter, finished runs are taken, all under the same conditions
    only : leaves out runs in which the setting of that dotted key has another value
    against : the method whose row the others are compared with; the first row if None
    """
    runs = _chosen([run for folder in folders for run in load_runs(folder)], only or {})
    for folder in folders:
        _refuse_mixed_folder(folder, [run for run in runs if run.folder.parent == folder])
    _refuse_mixtures(runs)
    groups: dict[tuple[tuple[str, Any], ...], list[FinishedRun]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted((key, repr(value)) for key, value in run.settings.items())), []).append(run)
    rows = list(groups.values())
    base = rows[0] if against is None else _rows_of(against, rows)
    return [summary(group, base, _telling(group[0], rows)) for group in rows]


def _chosen(runs: list[FinishedRun], only: Mapping[str, Any]) -> list[FinishedRun]:
    for key, value in only.items():
        if not any(key in run.settings for run in runs) and key != "seed":
            known = {name for run in runs for name in run.settings}
            raise ConfigError(f"--only {key}={value}: none of the runs has that setting.{did_you_mean(key, known)}")
        left = [run for run in runs if (run.seed if key == "seed" else run.settings.get(key)) == value]
        if not left:
            raise ConfigError(f"--only {key}={value}: no run is left.")
        runs = left
    return runs


def _rows_of(method: str, rows: list[list[FinishedRun]]) -> list[FinishedRun]:
    found = [group for group in rows if group[0].result["method"] == method]
    if len(found) != 1:
        names = list(dict.fromkeys(group[0].result["method"] for group in rows))
        count = "more than one row" if found else "no row"
        raise ConfigError(
            f"--against {method}: there is {count} of it.{did_you_mean(method, names) if not found else ''}"
        )
    return found[0]


def _refuse_mixed_folder(folder: Path, runs: Sequence[FinishedRun]) -> None:
    """Refuse a folder whose runs differ in more than method and seed: nobody named them one by one."""
    for run in runs[1:]:
        for key in sorted(run.settings.keys() | runs[0].settings.keys()):
            ours, theirs = runs[0].settings.get(key), run.settings.get(key)
            if not key.startswith("method") and ours != theirs:
                raise RunFolderError(
                    f"{folder} holds runs under different conditions: {key} is {ours} in {runs[0].folder.name} and "
                    f"{theirs} in {run.folder.name}. Choose with --only {key}={ours}, or name the runs one by one."
                )


def _refuse_mixtures(runs: Sequence[FinishedRun]) -> None:
    """Refuse what would put numbers side by side that say nothing about each other."""
    first = runs[0]
    for run in runs[1:]:
        ours, theirs = first.settings["data.dataset"], run.settings["data.dataset"]
        if ours != theirs:
            raise RunFolderError(
                f"{first.folder} is on {ours} and {run.folder} on {theirs}: compare runs on one data set at a time."
            )
    seen: dict[tuple[Any, ...], Path] = {}
    for run in runs:
        key = (run.seed, *sorted((name, repr(value)) for name, value in run.settings.items()))
        if key in seen:
            raise RunFolderError(f"{seen[key]} and {run.folder} are the same run twice: leave one out.")
        seen[key] = run.folder


def summary(group: Sequence[FinishedRun], base: Sequence[FinishedRun], settings: tuple[str, ...] = ()) -> Row:
    """Return the row of runs that differ in their seed only; `base` are the runs it is compared with."""
    results = [run.result for run in group]
    accuracies = [result["accuracy"] for result in results]
    difference = None if group is base else difference_between(group, base)
    return Row(
        method=results[0]["method"],
        settings=settings,
        seeds=tuple(run.seed for run in group),
        accuracy=float(np.mean(accuracies)),
        seed_spread=float(np.std(accuracies, ddof=1)) if len(group) > 1 else None,
        half_width=float(np.mean([result["accuracy_half_width"] for result in results])),
        difference=None if difference is None else difference.mean,
        is_different=None if difference is None else difference.is_significant,
        identification=_mean([result["identification_accuracy"] for result in results]),
        noise_before=_mean([result["noise_before"] for result in results]),
        noise_after=_mean([result["noise_after"] for result in results]),
    )


def difference_between(group: Sequence[FinishedRun], base: Sequence[FinishedRun]) -> Difference | None:
    """Return the paired difference over the test images of all seeds that both sides have."""
    by_seed = {run.seed: run for run in base}
    pairs = [(run, by_seed[run.seed]) for run in group if run.seed in by_seed]
    pairs = [(a, b) for a, b in pairs if np.array_equal(a.test_labels, b.test_labels)]
    if not pairs:
        return None
    # Several models of one run weigh as one: an image is worth the share of them that are right.
    ours, theirs = (_side_by_side([pair[i].correct for pair in pairs]) for i in (0, 1))
    return paired_difference(ours, theirs)


def _side_by_side(correct: list[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    return np.concatenate(correct, axis=-1)


def _telling(run: FinishedRun, groups: list[list[FinishedRun]]) -> tuple[str, ...]:
    """Return the settings that tell a row from the others of its method, or, for data and rounds, from all others."""
    found = []
    for key, value in run.settings.items():
        others = [group[0] for group in groups if key.partition(".")[0] != "method" or _same_method(group[0], run)]
        if any(other.settings.get(key) != value for other in others):
            found.append(f"{key}={value}")
    return tuple(found)


def _same_method(one: FinishedRun, other: FinishedRun) -> bool:
    return bool(one.settings["method.name"] == other.settings["method.name"])


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
