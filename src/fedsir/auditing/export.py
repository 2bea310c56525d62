"""An audit's samples for other tools: tasks for Label Studio, columns as cleanlab names them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import fedsir
from fedsir.auditing.folder import AuditFolder, AuditFolderError
from fedsir.auditing.folder_writer import csv_bytes, write_whole
from fedsir.data.naming import natural_key

Format = Literal["label-studio", "cleanlab"]
FILES: dict[str, str] = {"label-studio": "label-studio.json", "cleanlab": "cleanlab.csv"}
CLEANLAB_COLUMNS = ("client", "id", "path", "is_label_issue", "label_quality", "given_label", "predicted_label")
LOCAL_FILES = "/data/local-files/?d="  # how Label Studio names files of its own disk
Row = dict[str, Any]


def export_audit(
    folder: AuditFolder, form: Format, clients: Sequence[str] = (), out: Path | None = None, prefix: str = LOCAL_FILES
) -> list[Path]:
    """Write the samples in another tool's form and return the files; without `out`, each client's in its own folder.

    Parameters
    ----------
    clients : whose; everybody's if empty
    prefix : what comes before an image's path in Label Studio
    """
    chosen = list(clients) or folder.client_names
    if out is not None:
        rows = [row for client in chosen for row in _rows(folder, client)]
        return _write(folder, form, rows, out, prefix, is_new=True)
    files: list[Path] = []
    for client in chosen:
        target = folder.client_folder(client) / FILES[form]
        files += _write(folder, form, _rows(folder, client), target, prefix, is_new=False)
    return files


def _rows(folder: AuditFolder, client: str) -> list[Row]:
    return [{"client": client, **row} for row in folder.samples(client).rows()]


def _write(folder: AuditFolder, form: Format, rows: list[Row], out: Path, prefix: str, *, is_new: bool) -> list[Path]:
    if is_new and out.exists():
        raise AuditFolderError(f"{out} exists, and nothing is overwritten: choose another --out.")
    files = {out: _cleanlab(rows) if form == "cleanlab" else _tasks(rows, prefix)}
    if form == "label-studio":
        files[out.with_suffix(".xml")] = _labelling_page(folder.class_names)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        for path, content in files.items():
            write_whole(path, content)
    except OSError as problem:
        raise AuditFolderError(f"Could not write {out}: {problem.strerror}.") from None
    return list(files)


def _cleanlab(rows: list[Row]) -> bytes:
    """Return a row per sample, in natural order of ids, with the columns of cleanlab's find_label_issues."""
    renamed = [
        {**row, "label_quality": row["score"], "predicted_label": row["suggested_label"]}
        for row in sorted(rows, key=lambda row: natural_key(row["id"]))
    ]
    return csv_bytes(CLEANLAB_COLUMNS, renamed)


def _tasks(rows: list[Row], prefix: str) -> bytes:
    """Return Label Studio tasks, worst first; the suggested label is a prediction."""
    version = f"fedsir {fedsir.__version__}"
    tasks = []
    for row in sorted(rows, key=lambda row: (row["rank"], row["client"])):
        chosen: Row = {
            "from_name": "label",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [row["suggested_label"]]},
        }
        shown = prefix + quote(row["path"]) if row["path"] else row["id"]
        about: Row = {name: row[name] for name in ("id", "client", "given_label", "is_label_issue", "score")}
        prediction: Row = {"model_version": version, "score": row["suggested_probability"], "result": [chosen]}
        tasks.append({"data": about | {"image": shown}, "predictions": [prediction]})
    return (json.dumps(tasks, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode()


def _labelling_page(class_names: list[str]) -> bytes:
    """Return the labelling set-up that these tasks are for."""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in class_names)
    return (
        '<View>\n  <Image name="image" value="$image"/>\n  <Choices name="label" toName="image">\n'
        f"{choices}\n  </Choices>\n</View>\n"
    ).encode()
