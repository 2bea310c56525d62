"""`fedsir audit`: which clients' labels look wrong, and which labels; then `review`, `apply`, `export`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedsir.cli import audit_apply, audit_export, audit_review, options
from fedsir.cli.plain_help import PlainGroup
from fedsir.cli.terminal import say, say_json, say_table, say_text

if TYPE_CHECKING:
    from fedsir.auditing.extraction import Progress
    from fedsir.auditing.folder_writer import Origin
    from fedsir.auditing.result import AuditResult

DATA_COMMAND = "DATA"  # what is done when the first word is no command
MOST_CLIENTS = 20  # lines of the table; clients.csv has all


class AuditGroup(PlainGroup):
    """`fedsir audit DATA …` beside `fedsir audit COMMAND …`: a first word that is no command names data.

    Data in a folder called like a command are ./review.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        visible = {name for name, command in self.commands.items() if not command.hidden}
        if args and args[0] not in visible and args[0] not in ctx.help_option_names:
            args = [DATA_COMMAND, *args]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return ("" if name == DATA_COMMAND else name), command, rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        del ctx
        return ["DATA -o DIR [OPTIONS] | COMMAND …"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        self.commands[DATA_COMMAND].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)


app = typer.Typer(
    cls=AuditGroup,
    help="Say which clients' labels look wrong, how many and which. Nothing is trained, no label is changed.\n\n"
    "DATA is a folder client/class/image, or an npz or parquet file with images or with features that you have "
    "already. Every client is judged by what the classes of all the others look like.\n\n"
    "Example: `fedsir audit my_images -o my_audit`, then open my_audit/report.html.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("review")(audit_review.review)
app.command("apply")(audit_apply.apply)
app.command("export")(audit_export.export)


@app.command(DATA_COMMAND, hidden=True)
def audit(
    data: Annotated[Path, typer.Argument(help="Folder client/class/image, npz or parquet file.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="Folder for the result: new, or of an earlier audit.", show_default=False),
    ],
    features: Annotated[
        str, typer.Option(help="What makes features of images: resnet18 (ImageNet weights), or MODULE:CLASS.")
    ] = "resnet18",
    image_size: Annotated[
        int, typer.Option(help="Side in pixels that images are brought to; 0: about theirs, 32 to 224.", min=0)
    ] = 0,
    max_corrupt: Annotated[
        float, typer.Option(help="Largest share of images that may be unreadable; they are skipped and listed.")
    ] = 0.1,
    min_cell: Annotated[int, typer.Option(help="Smallest count shown in files that are made to be shared.")] = 5,
    data_dir: options.DataDir = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Say which clients' labels look wrong, how many and which."""
    from fedsir.auditing.from_files import audit_files

    with _progress() as progress:
        result, origin = audit_files(
            data,
            out,
            extractor=features,
            image_size=image_size or None,
            max_corrupt=max_corrupt,
            min_cell=min_cell,
            data_dir=data_dir,
            download=download,
            progress=progress,
        )
    if as_json:
        say_json(_as_json(result, origin, out))
    else:
        _show(result, origin, out)


def _as_json(result: AuditResult, origin: Origin, out: Path) -> dict[str, Any]:
    return {
        "audit": str(out.resolve()),
        "headline": result.headline,
        "clients": [row | {"client": str(row["client"])} for row in result.clients.rows()],
        "samples": result.samples.n_rows,
        "suspicious": int(result.samples["is_label_issue"].sum()),
        "skipped": sum(map(len, origin.skipped.values())),
        "features": {"name": origin.extractor, "dimension": result.n_features, **origin.details},
        "note": result.note,
    }


def show_clients(clients: Sequence[Mapping[str, Any]], out: Path) -> None:
    """Print the table of clients; a count that nobody told is a dash."""
    from fedsir.auditing.sharing import percent

    rows = []
    for row in clients[:MOST_CLIENTS]:
        low, high = percent(row["noise_rate_low"]), percent(row["noise_rate_high"])
        wrong = f"{percent(row['noise_rate'])} ({low} to {high})" if row["verdict"] != "not assessed" else "–"
        counts = [f"{n:,}" if isinstance(n, int) else n or "–" for n in (row["samples"], row["suspicious"])]
        rows.append((str(row["client"]), counts[0], row["verdict"], wrong, counts[1]))
    say_table(("client", "samples", "verdict", "wrong labels", "suspicious"), rows, left=(0, 2))
    if len(clients) > MOST_CLIENTS:
        say(f"… and {len(clients) - MOST_CLIENTS:,} more in {out / 'clients.csv'}")


def show_next(folder: str) -> None:
    """Print the commands that come after an audit."""
    from fedsir.auditing.pages import next_commands

    for what, command in next_commands(folder):
        say(f"  {command}   # {what}")


def _show(result: AuditResult, origin: Origin, out: Path) -> None:
    show_clients(list(result.clients.rows()), out)
    if n_skipped := sum(map(len, origin.skipped.values())):
        images = "1 image" if n_skipped == 1 else f"{n_skipped:,} images"
        say_text(f"note: {images} could not be read; skipped.csv in the clients' folders lists them")
    if result.note:
        say_text(f"note: {result.note}")
    if "kept_at" in origin.details:
        say(f"features are kept in {origin.details['kept_at']}")
    say("")
    say_text(f"{result.headline}.", bold=True)
    say(f"The whole answer: {out / 'report.html'}. What comes next:")
    show_next(shlex.quote(str(out)))


@contextmanager
def _progress() -> Iterator[Progress]:
    """Yield what is told how many images are done: a bar on a terminal, a line now and then elsewhere."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    from fedsir.runs.progress import SILENCE, print_line

    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        with Bar(console=console, transient=True) as bar:
            task = bar.add_task("features", start=False, visible=False)

            def draw(done: int, n: int) -> None:
                bar.start_task(task)
                bar.update(task, completed=done, total=n, visible=True)

            yield draw
        return
    import time

    last = time.monotonic()

    def tell(done: int, n: int) -> None:
        nonlocal last
        if time.monotonic() - last >= SILENCE:
            last = time.monotonic()
            print_line(console, f"features: {done:,} of {n:,} images")

    yield tell
