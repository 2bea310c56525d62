"""Finished runs as others read them: settings, result, and which test images the model got right."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.errors import RunFolderError
from fedsir.experiment.run_folder import RunFolder


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class FinishedRun:
    """What a comparison reads of a run folder.

    settings : dotted key → value, the seed left out
    correct : (n_test,) bool, or (clients, n_test) where clients have models of their own
    test_labels : (n_test,) of the test images, in their order
    """

    folder: Path
    result: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    correct: NDArray[np.bool_]
    test_labels: NDArray[np.int64]


def load_runs(folder: Path) -> list[FinishedRun]:
    """Return the run in a folder; in a folder of run folders, all that are finished."""
    inside = _run_folders_in(folder)
    if not inside:
        return [load_run(folder)]
    finished = [path for path in inside if _is_finished(path)]
    if not finished:
        raise RunFolderError(f"None of the {len(inside)} run(s) in {folder} is finished.")
    return [load_run(path) for path in finished]


def unfinished_in(folder: Path) -> list[Path]:
    """Return what `load_runs` leaves out: the runs in a folder of run folders that are not finished."""
    return [path for path in _run_folders_in(folder) if not _is_finished(path)]


def _run_folders_in(folder: Path) -> list[Path]:
    is_run = (folder / "config.toml").is_file()
    return [] if is_run else sorted(path.parent for path in folder.glob("*/config.toml"))


def _is_finished(folder: Path) -> bool:
    return (folder / "result.json").is_file()


def load_run(folder: Path) -> FinishedRun:
    """Return a finished run; a folder that holds none is an error that names it."""
    if not (folder / "config.toml").is_file():
        raise RunFolderError(f"{folder} is no run folder: there is no config.toml in it.")
    result = RunFolder(folder).read_json("result.json", needs="model_sha256")
    if result is None:
        raise RunFolderError(
            f"The run in {folder} is not finished: go on with `fedsir run {folder / 'config.toml'} --out {folder}`."
        )
    try:
        config = tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))
        with np.load(folder / "predictions.npz", allow_pickle=False) as arrays:
            predicted, labels = arrays["predicted"], arrays["labels"]
    except (OSError, ValueError, KeyError) as problem:
        raise RunFolderError(f"{folder} cannot be read: {problem}. Run its command again, or leave it out.") from None
    seed = config.pop("seed")
    return FinishedRun(folder, result, dict(flat(config)), seed, predicted == labels, labels)


def flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return (dotted key, value) of every leaf of a tree."""
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        pairs += flat(value, f"{prefix}{key}.") if isinstance(value, dict) else [(prefix + key, value)]
    return pairs


def provenance_of(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the distinct versions and machines behind runs; more than one means that they were made apart."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        stored = RunFolder(folder).read_json("provenance.json", needs="initial_weights")
        if stored is None:
            raise RunFolderError(f"{folder} does not tell where it was made: there is no provenance.json in it.")
        kept = {key: stored[key] for key in ("versions", "platform", "processor", "cores", "device", "initial_weights")}
        found.setdefault(json.dumps(kept, sort_keys=True), kept)
    return list(found.values())
