"""Run folders by the dozen: which are finished, and where they were made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fedsir.errors import RunFolderError
from fedsir.runs.file_forms import ProvenanceFile
from fedsir.runs.result import RunResult, load_run
from fedsir.runs.run_folder import RunFolder


def load_runs(folder: Path) -> list[RunResult]:
    """Return the run in a folder; in a folder of run folders, all that are finished."""
    inside = _run_folders_in(folder)
    finished = [path for path in inside if _is_finished(path)]
    if inside and not finished:
        raise RunFolderError(f"None of the {len(inside)} run(s) in {folder} is finished.")
    return [load_run(path) for path in finished or [folder]]


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


def provenance_of(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """Return the distinct versions and machines behind runs; more than one means that they were made apart."""
    found: dict[str, dict[str, Any]] = {}
    for folder in folders:
        stored = RunFolder(folder).read_json("provenance.json", ProvenanceFile)
        if stored is None:
            raise RunFolderError(f"{folder} does not tell where it was made: there is no provenance.json in it.")
        kept = {key: stored[key] for key in ProvenanceFile.model_fields} | {"code_sha256": stored.get("code_sha256")}
        found.setdefault(json.dumps(kept, sort_keys=True), kept)
    return list(found.values())
