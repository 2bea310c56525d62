"""Finished runs as others read them: settings, result, and which test images the model got right."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.errors import RunFolderError
from fedsir.runs.file_forms import DataFile, ProvenanceFile
from fedsir.runs.run_folder import RunFolder, reading

TOLD = ("versions", "platform", "processor", "cores", "device", "initial_weights")  # of provenance.json


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class FinishedRun:
    """What a comparison reads of a run folder.

    settings : dotted key → value, the seed left out
    correct : (n_test,) bool, or (clients, n_test) where clients have models of their own
    test_labels : (n_test,) of the test images, in their order
    test_rows : (n_test,) which images these are, the same for all seeds; None in folders from before it was stored
    images_sha256 : of all images of the data set; None in folders from before it was stored
    """

    folder: Path
    result: dict[str, Any]
    settings: dict[str, Any]
    seed: int
    correct: NDArray[np.bool_]
    test_labels: NDArray[np.int64]
    test_rows: NDArray[np.int64] | None = None
    images_sha256: str | None = None


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
    """Return the run folders in a folder that is none itself."""
    try:
        if (folder / "config.toml").is_file() or not folder.is_dir():
            return []
        return sorted(path for path in folder.iterdir() if path.is_dir() and (path / "config.toml").is_file())
    except OSError as problem:
        raise RunFolderError(f"{problem.filename or folder} cannot be read: {problem.strerror}.") from None


def _is_finished(folder: Path) -> bool:
    return (folder / "result.json").is_file()


def load_run(folder: Path) -> FinishedRun:
    """Return a finished run; a folder that holds none is an error that names it."""
    files = RunFolder(folder)
    result = files.finished_result()
    data = files.read_json("data.json", DataFile) or {}
    config = files.stored_config()
    with reading(folder / "config.toml"):
        seed, settings = config.pop("seed"), dict(flat(config))
        if type(seed) is not int or not {"method.name", "data.dataset"} <= settings.keys():
            raise ValueError("every run has these settings")
    path = folder / "predictions.npz"
    if not path.exists():
        raise RunFolderError(
            f"{path} is missing, which comparisons need: leave the folder out, or remove its result.json and then "
            f"run `{files.command()}`."
        )
    with reading(path), np.load(path, allow_pickle=False) as arrays:
        predicted, labels, rows = arrays["predicted"], arrays["labels"], arrays.get("rows")
        correct = np.asarray(predicted == labels)
        if (
            any(array.dtype.kind not in "iu" for array in (predicted, labels, *([] if rows is None else [rows])))
            or labels.ndim != 1
            or predicted.shape[-1:] != labels.shape
            or (rows is not None and rows.shape != labels.shape)
            or abs(correct.mean() - result["accuracy"]) > 1e-6
        ):
            raise ValueError("these are not the predictions behind result.json")
    return FinishedRun(folder, result, settings, seed, correct, labels, rows, data.get("images_sha256"))


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
        stored = RunFolder(folder).read_json("provenance.json", ProvenanceFile)
        if stored is None:
            raise RunFolderError(f"{folder} does not tell where it was made: there is no provenance.json in it.")
        kept = {key: stored[key] for key in TOLD} | {"code_sha256": stored.get("code_sha256")}
        found.setdefault(json.dumps(kept, sort_keys=True), kept)
    return list(found.values())
