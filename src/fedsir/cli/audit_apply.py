"""`fedsir audit apply`: new label files from decisions, or from a threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsir.cli import options
from fedsir.cli.terminal import say, say_files, say_json

MOST_FILES = 10  # that are listed

Folder = Annotated[Path, typer.Argument(help="Folder of the audit.", show_default=False)]
Clients = Annotated[
    list[str] | None, typer.Option("--client", help="Only this client. Repeatable.", show_default=False)
]


def apply(
    folder: Folder,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Take suggested labels where this holds, as in 'score<0.2' or 'score<0.3 and rank<=100'. Compares "
            "score, suggested_probability and rank. Default: only what people decided.",
            show_default=False,
        ),
    ] = None,
    clients: Clients = None,
    out: Annotated[
        Path | None, typer.Option(help="One CSV file for all. Default: labels.csv in each client's folder.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            "--folder", help="Also copy the audited images into this new folder, client/class/image by new labels."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Write new label files, and undo files beside them. Nothing is changed in place, nothing is overwritten.

    Decisions from `fedsir audit review` count first; --accept is for the samples that nobody decided on.

    Examples: `fedsir audit apply my_audit`, `fedsir audit apply my_audit --accept 'score<0.2' --client north`.
    """
    from fedsir.auditing.apply import apply_audit
    from fedsir.auditing.condition import parse_condition
    from fedsir.auditing.folder import AuditFolder

    condition = None if accept is None else parse_condition(accept)
    done = apply_audit(AuditFolder(folder), condition, clients or (), out, images)
    for note in done.notes:
        say(f"note: {note}", err=True)
    if as_json:
        counts = {"samples": done.n_samples, "changed": done.n_changed}
        by = {"open": done.n_open, "by_decision": done.n_decided, "by_threshold": done.n_accepted}
        say_json({**counts, **by, "files": [str(path.resolve()) for path in done.files]})
        return
    if done.n_open:
        say(f"{done.n_open:,} suspicious sample{'s keep their labels' if done.n_open > 1 else ' keeps its label'}.")
    say(
        f"{done.n_changed:,} of {done.n_samples:,} labels changed: {done.n_decided:,} by decision, "
        f"{done.n_accepted:,} by threshold. Your data are as they were; the new labels are in"
    )
    say_files(done.files[:MOST_FILES])
    if len(done.files) > MOST_FILES:
        say(f"… and {len(done.files) - MOST_FILES:,} more in the clients' folders")
    if images is not None:
        say(f"and the images, sorted by them, in {images}")
