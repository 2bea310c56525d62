"""A folder client/class/image with new labels: copies, so that the audited data stay as they are."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from fedsir.auditing.folder import AuditFolder, AuditFolderError


def write_relabelled(folder: AuditFolder, rows: Sequence[Mapping[str, Any]], target: Path) -> Path:
    """Copy audited images into ``client/label/image`` below a new folder and return it.

    rows : client, path, label and given_label of each sample, as `apply_audit` has them
    """
    about = folder.audit["data"]
    if about.get("kind") != "folder" or not about.get("path"):
        raise AuditFolderError(
            f"{folder.path}: a folder of images was not audited, so --folder has nothing to copy. Leave it out: "
            "labels.csv has the new label of every id, to be joined to your npz or parquet file."
        )
    source = Path(about["path"])
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise AuditFolderError(f"{target} is there already, and nothing is overwritten: choose another --folder.")
    if target.resolve().is_relative_to(source.resolve()):
        raise AuditFolderError(f"{target} lies inside the audited data: choose another --folder.")
    unsafe = [row["label"] for row in rows if not _is_folder_name(row["label"])]
    if unsafe:
        raise AuditFolderError(f"the label {unsafe[0]!r} cannot be the name of a folder: correct it in the review.")
    for row in rows:
        path = PurePosixPath(row["path"])
        _copy(source / path, _unused(target / row["client"] / row["label"], path.name, row["given_label"]))
    return target


def _is_folder_name(label: str) -> bool:
    return label not in ("", ".", "..") and "/" not in label and "\\" not in label and "\0" not in label


def _unused(home: Path, name: str, given: str) -> Path:
    """Return where a file goes; one of that name from another class is told apart by the label it had."""
    place, number = home / name, 1
    while place.exists():
        number += 1
        place = home / (f"{given}-{name}" if number == 2 else f"{given}-{number}-{name}")
    return place


def _copy(source: Path, target: Path) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    except OSError as problem:
        raise AuditFolderError(f"Could not copy {source} to {target}: {problem.strerror}.") from None
