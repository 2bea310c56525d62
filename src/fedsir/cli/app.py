"""The command line as a whole: its commands, its version, and how errors leave it."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Annotated, Any, NoReturn

import typer

from fedsir import __version__
from fedsir.cli import (
    INTERRUPTED,
    Stopped,
    audit,
    compare,
    demo,
    doctor,
    flower,
    listing,
    plan,
    report,
    reproduce,
    run,
    show,
    sweep,
)
from fedsir.cli.plain_help import PlainGroup
from fedsir.cli.terminal import forget_output, say
from fedsir.errors import FedsirError

USER_ERROR = 2
UsageError: Any = typer.BadParameter.__base__  # click's, of which newer versions of typer have a copy of their own

app = typer.Typer(
    name="fedsir",
    cls=PlainGroup,
    help="Federated learning when some clients' labels are wrong: find the noisy clients, repair their labels, "
    "train well.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.command("plan")(plan.plan)
app.command("demo")(demo.demo)
app.command("list")(listing.list_)
app.command("show")(show.show)
app.command("sweep")(sweep.sweep)
app.command("reproduce")(reproduce.reproduce)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("doctor")(doctor.doctor)
app.add_typer(audit.app, name="audit")
app.add_typer(flower.app, name="flower")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        say(f"fedsir {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    del version
    if context.invoked_subcommand is None:
        for line in context.get_help().splitlines():
            say(line)


def main() -> None:
    """Run the command line; what a user can put right is one line and code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without α and ± shows ? rather than a traceback
            stream.reconfigure(errors="replace")
    try:
        code = app(prog_name="fedsir", standalone_mode=False)
        if code == INTERRUPTED:  # typer has caught Ctrl-C and says nothing
            raise KeyboardInterrupt
        sys.exit(code)
    except typer.Abort:  # what other versions of typer make of Ctrl-C
        raise KeyboardInterrupt from None
    except Stopped as problem:
        say(f"fedsir: stopped; {problem}", err=True)
        sys.exit(INTERRUPTED)
    except FedsirError as problem:
        _refuse(str(problem))
    except UsageError as problem:
        what = " ".join(problem.format_message().split()).rstrip(".")
        _refuse(f"{what}. See `{problem.ctx.command_path.strip() if problem.ctx else 'fedsir'} --help`.")
    except OSError as problem:
        if problem.filename is not None:  # of a file, not of the output: a bug, so with its traceback
            raise
        _refuse(f"The output cannot be written: {problem.strerror}.")


def _refuse(message: str) -> NoReturn:
    with contextlib.suppress(FedsirError):  # nobody can be told that the error stream is closed
        say(f"fedsir: {' '.join(message.splitlines())}", err=True)  # a path may hold a line break
    forget_output()
    sys.exit(USER_ERROR)
