"""The command line as a whole: its commands, its version, and how errors leave it."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

from fedsir import __version__
from fedsir.cli import compare, demo, doctor, listing, plan, reproduce, run, show, sweep
from fedsir.errors import FedsirError

USER_ERROR = 2

app = typer.Typer(
    name="fedsir",
    help="Federated learning when some clients' labels are wrong: find the noisy clients, repair their labels, "
    "train well.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("demo")(demo.demo)
app.command("list")(listing.list_)
app.command("show")(show.show)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(reproduce.reproduce)
app.command("compare")(compare.compare)
app.command("doctor")(doctor.doctor)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"fedsir {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and leave.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run the command line; what a user can put right is one line and code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without α and ± shows ? rather than a traceback
            stream.reconfigure(errors="replace")
    try:
        app(standalone_mode=True)
    except FedsirError as problem:
        one_line = " ".join(str(problem).splitlines())  # a path may hold a line break
        typer.echo(f"fedsir: {one_line}", err=True)
        sys.exit(USER_ERROR)
