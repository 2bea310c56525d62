"""New label files from an audit: what people decided, and what a threshold accepts. Nothing is changed in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsir.auditing.condition import Condition
from fedsir.auditing.decisions import FILE_NAME, read_decisions
from fedsir.auditing.folder import AuditFolder, AuditFolderError
from fedsir.auditing.folder_writer import csv_bytes, write_whole
from fedsir.auditing.relabelled_folder import write_relabelled
from fedsir.data.naming import natural_key

LABEL_COLUMNS = ("client", "id", "path", "label", "given_label", "changed_by")
UNDO_COLUMNS = ("client", "id", "path", "label", "applied_label")
Row = dict[str, Any]


@dataclass(frozen=True)
class Applied:
    """What was written.

    files : label files, and the undo file of each
    n_samples, n_changed : labels in them, and how many differ from the given ones
    n_decided, n_accepted : of those changed, by a person and by the threshold
    n_open : suspicious samples that neither a person nor the threshold decided on
    notes : what somebody who decided should know
    """

    files: tuple[Path, ...]
    n_samples: int
    n_changed: int
    n_decided: int
    n_accepted: int
    n_open: int
    notes: tuple[str, ...] = ()


def apply_audit(
    folder: AuditFolder,
    accept: Condition | None,
    clients: Sequence[str] = (),
    out: Path | None = None,
    images: Path | None = None,
) -> Applied:
    """Write every label as it should be, and how to take that back.

    A decision counts more than the threshold: a label that somebody rejected stays. Without `out`, each client gets
    its files in its own folder; with it, one file has all.

    Parameters
    ----------
    accept : which suggestions to take for samples that nobody decided on; None takes none
    clients : whose; everybody's if empty
    images : new folder for copies of the audited images, sorted by their new labels
    """
    chosen = list(clients) or folder.client_names
    notes: list[str] = []
    by_client = {client: _labels(folder, client, accept, notes) for client in chosen}
    if accept is None and not any((folder.client_folder(client) / FILE_NAME).exists() for client in chosen):
        raise AuditFolderError(
            f"{folder.path}: nobody has decided anything yet. Go through the samples with `fedsir audit review`, or "
            "say which suggestions to take, as in --accept 'score<0.2'."
        )
    files: list[Path] = []
    everything = [row for mine in by_client.values() for row in mine]
    if images is not None:
        write_relabelled(folder, everything, images)
    if out is not None:
        files += _write(everything, out, out.with_name(f"{out.stem}.undo{out.suffix or '.csv'}"))
    else:
        for client, mine in by_client.items():
            home = folder.client_folder(client)
            files += _write(mine, *_unused(home, "labels", "undo"))
    changed = [row for row in everything if row["label"] != row["given_label"]]
    return Applied(
        files=tuple(files),
        n_samples=len(everything),
        n_changed=len(changed),
        n_decided=sum(row["changed_by"] == "decision" for row in changed),
        n_accepted=sum(row["changed_by"] == "threshold" for row in changed),
        n_open=sum(row["is_open"] for row in everything),
        notes=tuple(notes),
    )


def _labels(folder: AuditFolder, client: str, accept: Condition | None, notes: list[str]) -> list[Row]:
    """Return a client's samples with the labels they should have, in natural order of their ids."""
    samples = folder.samples(client)
    journal = folder.client_folder(client) / FILE_NAME
    decisions = read_decisions(journal)
    decided = decisions.labels()
    notes += [f"{journal}: line {line} was cut short and does not count" for line in decisions.torn]
    if n_unknown := len(decided.keys() - set(samples["id"].tolist())):
        about = "decision is about samples" if n_unknown == 1 else "decisions are about samples"
        notes.append(f"{journal}: {n_unknown:,} {about} that the audit does not have")
    is_accepted = np.zeros(samples.n_rows, bool)
    if accept is not None:
        is_accepted = samples["is_label_issue"].astype(bool) & accept.holds(samples)
    rows = []
    for row, taken in zip(samples.rows(), is_accepted.tolist(), strict=True):
        label, changed_by = row["given_label"], ""
        if row["id"] in decided:
            label, changed_by = decided[row["id"]], "decision"
        elif taken:
            label, changed_by = row["suggested_label"], "threshold"
        kept = {name: row[name] for name in ("id", "path", "given_label")}
        is_changed = label != row["given_label"]
        is_open = row["is_label_issue"] and not changed_by
        known = {"client": client, **kept, "label": label, "is_open": is_open}
        rows.append(known | {"changed_by": changed_by if is_changed else ""})
    return sorted(rows, key=lambda row: natural_key(row["id"]))


def _write(rows: list[Row], labels: Path, undo: Path) -> list[Path]:
    for path in (labels, undo):
        if path.exists():
            raise AuditFolderError(f"{path} exists, and nothing is overwritten: choose another --out.")
    taken_back = [
        {**row, "label": row["given_label"], "applied_label": row["label"]}
        for row in rows
        if row["label"] != row["given_label"]
    ]
    try:
        labels.parent.mkdir(parents=True, exist_ok=True)
        write_whole(undo, csv_bytes(UNDO_COLUMNS, taken_back))  # first: no change without a way back
        write_whole(labels, csv_bytes(LABEL_COLUMNS, rows))
    except OSError as problem:
        raise AuditFolderError(f"Could not write {labels}: {problem.strerror}.") from None
    return [labels, undo]


def _unused(home: Path, *names: str) -> list[Path]:
    """Return a CSV file for each name, numbered from the second time on."""
    number = 1
    while any((home / _numbered(name, number)).exists() for name in names):
        number += 1
    return [home / _numbered(name, number) for name in names]


def _numbered(name: str, number: int) -> str:
    return f"{name}.csv" if number == 1 else f"{name}-{number}.csv"
