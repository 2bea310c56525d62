"""From folders to a page on disk: which page it is, what it is called, and who is left out."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedsir.errors import FedsirError, RunFolderError
from fedsir.report.run_files import is_run_folder
from fedsir.runs.run_folder import check_name

PAGE = "report.html"
OF_SEVERAL = "fedsir-report.html"


class ReportError(FedsirError):
    """A page cannot be made, or not be written where it was asked for."""


@dataclass(frozen=True)
class Written:
    """A page on disk.

    kind : what it shows
    left_out : runs that are not on it because they are not finished
    """

    path: Path
    kind: Literal["run", "comparison"]
    left_out: tuple[Path, ...] = ()


def write_report(
    folders: Sequence[Path | str],
    out: Path | str | None = None,
    *,
    only: Mapping[str, Any] | None = None,
    against: str | None = None,
    images: bool = True,
    similarities: bool = False,
    data_dir: Path | None = None,
) -> Written:
    """Write the page of one run, or of several runs side by side, and return where it is.

    Parameters
    ----------
    folders : run folders, or folders that hold run folders
    out : the file; by default report.html in the one folder that was named, else fedsir-report.html here
    only, against : as in `fedsir.sweeps.comparison.compare`; for several runs
    images : whether the page of a run shows samples, which needs its data set
    similarities : whether to compute Stage I once more for the class similarities of a run's clients
    data_dir : where published data sets lie
    """
    paths = [_existing(Path(folder)) for folder in folders]
    if not paths:
        raise ReportError("Name at least one folder.")
    target = Path(out) if out is not None else (paths[0] / PAGE if len(paths) == 1 else Path(OF_SEVERAL))
    refuse_target(target)
    if len(paths) == 1 and is_run_folder(paths[0]):
        from fedsir.report.run_page import run_page

        text = run_page(paths[0], images=images, similarities=similarities, data_dir=data_dir)
        return Written(write_page(target, text), "run")
    from fedsir.report.comparison_page import comparison_page

    finished, left_out = _finished(paths)
    text = comparison_page(finished, only=only, against=against)
    return Written(write_page(target, text), "comparison", tuple(left_out))


def _existing(folder: Path) -> Path:
    try:
        if folder.is_dir():
            return folder
        is_there = folder.exists()
    except (OSError, ValueError) as problem:
        raise RunFolderError(f"{folder} cannot be read: {problem}.") from None
    raise RunFolderError(f"{folder} is a file: name a folder." if is_there else f"There is no folder {folder}.")


def _finished(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the folders to compare, and the unfinished runs that are left out."""
    from fedsir.runs.finished_runs import unfinished_in

    finished: list[Path] = []
    left_out: list[Path] = []
    for path in paths:
        if is_run_folder(path):
            (finished if (path / "result.json").is_file() else left_out).append(path)
            continue
        if not any(is_run_folder(inside) for inside in path.iterdir() if inside.is_dir()):
            raise RunFolderError(
                f"{path} holds neither a run (there is no config.toml in it), nor runs, nor an audit (no audit.json)."
            )
        finished.append(path)
        left_out += unfinished_in(path)
    if not finished:
        raise RunFolderError(
            f"None of the {len(left_out)} runs is finished: name one of them alone for a page of what there is."
        )
    return finished, left_out


def refuse_target(path: Path) -> None:
    """Raise an error if a page cannot be written there; said before the work, not after it."""
    check_name(path.parent)
    if path.is_dir():
        raise ReportError(f"{path} is a folder: -o must name a file, for instance {path / PAGE}.")
    if not path.parent.is_dir():
        raise ReportError(f"There is no folder {path.parent} to write {path.name} into: make it, or choose another -o.")


def write_page(path: Path, text: str) -> Path:
    """Write a page so that it is there whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_text(text, encoding="utf-8", newline="\n")
        beside.replace(path)
    except (OSError, ValueError) as problem:
        why = getattr(problem, "strerror", None) or str(problem)
        raise ReportError(f"Could not write {path}: {why}. Choose another -o.") from None
    finally:  # it is gone by now unless something went wrong
        with contextlib.suppress(OSError, ValueError):
            beside.unlink(missing_ok=True)
    return path
