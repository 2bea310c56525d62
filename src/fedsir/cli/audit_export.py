"""`fedsir audit export`: an audit's samples for other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from fedsir.cli import options
from fedsir.cli.audit_apply import MOST_FILES, Clients, Folder
from fedsir.cli.terminal import say, say_files, say_json


class Form(StrEnum):
    """What can be written."""

    label_studio = "label-studio"
    cleanlab = "cleanlab"


def export(
    folder: Folder,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            help="label-studio: tasks with predictions (JSON). cleanlab: its columns (CSV).",
            show_default=False,
        ),
    ],
    clients: Clients = None,
    out: Annotated[Path | None, typer.Option(help="One file for all. Default: a file in each client's folder.")] = None,
    prefix: Annotated[
        str, typer.Option(help="What comes before an image's path in Label Studio tasks.")
    ] = "/data/local-files/?d=",
    as_json: options.Json = False,
) -> None:
    """Write the samples in another tool's form: Label Studio tasks, or columns as cleanlab names them.

    Example: `fedsir audit export my_audit --format label-studio --client north`.
    """
    from fedsir.auditing.export import export_audit
    from fedsir.auditing.folder import AuditFolder

    files = export_audit(AuditFolder(folder), form.value, clients or (), out, prefix)
    if as_json:
        say_json({"files": [str(path.resolve()) for path in files]})
        return
    say_files(files[:MOST_FILES])
    if len(files) > MOST_FILES:
        say(f"… and {len(files) - MOST_FILES:,} more in the clients' folders")
