"""Finished runs side by side: what each method reached, over seeds, and which differences the test images support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.data.public import HELD_OUT
from fedsir.errors import ConfigError, RunFolderError, did_you_mean
from fedsir.evaluate.reports import Report
from fedsir.evaluate.statistics import Difference, paired_difference
from fedsir.runs.finished_runs import load_runs
from fedsir.runs.result import Predictions, RunResult


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
    is_base : whether the others are compared with it
    difference : accuracy minus that of the base, over the seeds both have; None where there are none, and of the base
    is_different : whether the paired bootstrap over the same test images excludes zero; None without `difference`
    identification, noise_before, noise_after : means over the seeds; None where undefined
    """

    method: str
    settings: tuple[str, ...]
    seeds: tuple[int, ...]
    accuracy: float
    seed_spread: float | None
    half_width: float
    is_base: bool
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
    return compare_groups(grouped(folders, only), against)


def grouped(folders: Sequence[Path], only: Mapping[str, Any] | None = None) -> list[list[RunResult]]:
    """Return the runs behind each row of `compare`: those that differ in their seed only."""
    runs = _chosen([run for folder in folders for run in load_runs(folder)], only or {})
    for folder in folders:
        _refuse_mixed_folder(folder, [run for run in runs if run.folder.parent == folder])
    _refuse_mixtures(runs)
    for run in runs:
        _ = run.predictions  # whoever has none is told now, also where nothing is compared with it
    groups: dict[tuple[tuple[str, Any], ...], list[RunResult]] = {}
    for run in runs:
        groups.setdefault(tuple(sorted((key, repr(value)) for key, value in run.settings.items())), []).append(run)
    return list(groups.values())


def compare_groups(groups: list[list[RunResult]], against: str | None = None) -> list[Row]:
    """Return one row per group, compared with that of the method `against`, or with the first."""
    base = groups[0] if against is None else _rows_of(against, groups)
    return [summary(group, base, _telling(group[0], groups)) for group in groups]


def _chosen(runs: list[RunResult], only: Mapping[str, Any]) -> list[RunResult]:
    for key, value in only.items():
        if not any(key in run.settings for run in runs) and key != "seed":
            known = {name for run in runs for name in run.settings}
            raise ConfigError(f"--only {key}={value}: none of the runs has that setting.{did_you_mean(key, known)}")
        wanted = None if value == "" else value  # nothing after the = is a setting that is not set
        left = [run for run in runs if (run.seed if key == "seed" else run.settings.get(key)) == wanted]
        if not left:
            raise ConfigError(f"--only {key}={value}: no run is left.")
        runs = left
    return runs


def _rows_of(method: str, rows: list[list[RunResult]]) -> list[RunResult]:
    found = [group for group in rows if group[0]["method"] == method]
    if len(found) != 1:
        names = list(dict.fromkeys(group[0]["method"] for group in rows))
        count = "more than one row" if found else "no row"
        raise ConfigError(
            f"--against {method}: there is {count} of it.{did_you_mean(method, names) if not found else ''}"
        )
    return found[0]


def _refuse_mixed_folder(folder: Path, runs: Sequence[RunResult]) -> None:
    """Refuse a folder whose runs differ in more than method and seed: nobody named them one by one."""
    for run in runs[1:]:
        for key in sorted(run.settings.keys() | runs[0].settings.keys()):
            ours, theirs = runs[0].settings.get(key), run.settings.get(key)
            # Public images from elsewhere take none from the clients.
            is_no_matter = key.startswith("method") or (key == "data.public" and HELD_OUT not in (ours, theirs))
            if not is_no_matter and ours != theirs:
                raise RunFolderError(
                    f"{folder} holds runs under different conditions: {key} is {_said(ours)} in {runs[0].folder.name} "
                    f"and {_said(theirs)} in {run.folder.name}. Choose with --only {quote(f'{key}={_value(ours)}')} or "
                    f"--only {quote(f'{key}={_value(theirs)}')}, or name the runs one by one."
                )


def _said(value: Any) -> str:
    return "not set" if value is None else _value(value)


def _value(value: Any) -> str:
    """Return a setting's value as `--only` takes it; nothing stands for one that is not set."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _refuse_mixtures(runs: Sequence[RunResult]) -> None:
    """Refuse what would put numbers side by side that say nothing about each other."""
    first = runs[0]
    for run in runs[1:]:
        ours, theirs = first.settings["data.dataset"], run.settings["data.dataset"]
        if ours != theirs:
            raise RunFolderError(
                f"{first.folder} is on {ours} and {run.folder} on {theirs}: compare runs on one data set at a time."
            )
        if None not in (first.images_sha256, run.images_sha256) and first.images_sha256 != run.images_sha256:
            raise RunFolderError(
                f"{first.folder} and {run.folder} were run on different images, though both call them {ours}: the "
                "data have changed in between. Run one of them again."
            )
    seen: dict[tuple[Any, ...], Path] = {}
    for run in runs:
        key = (run.seed, *sorted((name, repr(value)) for name, value in run.settings.items()))
        if key in seen:
            raise RunFolderError(f"{seen[key]} and {run.folder} are the same run twice: leave one out.")
        seen[key] = run.folder


def summary(group: Sequence[RunResult], base: Sequence[RunResult], settings: tuple[str, ...] = ()) -> Row:
    """Return the row of runs that differ in their seed only; `base` are the runs it is compared with."""
    accuracies = [run["accuracy"] for run in group]
    is_base = group is base
    difference = None if is_base else difference_between(group, base)
    return Row(
        method=group[0]["method"],
        settings=settings,
        seeds=tuple(run.seed for run in group),
        accuracy=float(np.mean(accuracies)),
        seed_spread=float(np.std(accuracies, ddof=1)) if len(group) > 1 else None,
        half_width=float(np.mean([run["accuracy_half_width"] for run in group])),
        is_base=is_base,
        difference=None if difference is None else difference.mean,
        is_different=None if difference is None else difference.is_significant,
        identification=_mean([run["identification_accuracy"] for run in group]),
        noise_before=_mean([run["noise_before"] for run in group]),
        noise_after=_mean([run["noise_after"] for run in group]),
    )


def difference_between(group: Sequence[RunResult], base: Sequence[RunResult]) -> Difference | None:
    """Return the paired difference over the test images of all seeds that both sides have."""
    by_seed = {run.seed: run.predictions for run in base}
    pairs = [(run.predictions, by_seed[run.seed]) for run in group if run.seed in by_seed]
    pairs = [(a, b) for a, b in pairs if _same_images(a, b)]
    if not pairs:
        return None
    # Several models of one run weigh as one: an image is worth the share of them that are right.
    ours, theirs = (np.concatenate([pair[i].correct for pair in pairs], axis=-1) for i in (0, 1))
    images = _images([ours for ours, _ in pairs]) if len(pairs) > 1 else None
    return paired_difference(ours, theirs, images=images)


def _same_images(one: Predictions, other: Predictions) -> bool:
    if one.rows is not None and other.rows is not None:
        return np.array_equal(one.rows, other.rows)
    return np.array_equal(one.labels, other.labels)


def _images(runs: Sequence[Predictions]) -> NDArray[np.int64]:
    """Return which image each test image of each run is, one run after the other: seeds may share them.

    Folders from before this was stored: the same images if their labels are the same, else all different ones.
    """
    rows = [run.rows for run in runs if run.rows is not None]
    if len(rows) == len(runs):
        return np.concatenate(rows)
    if all(_same_images(run, runs[0]) for run in runs):
        return np.tile(np.arange(len(runs[0].labels)), len(runs))
    return np.arange(sum(len(run.labels) for run in runs))


def _telling(run: RunResult, groups: list[list[RunResult]]) -> tuple[str, ...]:
    """Return the settings that tell a row from the others of its method, or, for data and rounds, from all others."""
    everybody = [group[0] for group in groups]
    same_method = [other for other in everybody if other.settings["method.name"] == run.settings["method.name"]]
    found = []
    for key, value in run.settings.items():
        others = same_method if key.partition(".")[0] == "method" else everybody
        if any(other.settings.get(key) != value for other in others):
            found.append(f"{key}={value}")
    return tuple(found)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
