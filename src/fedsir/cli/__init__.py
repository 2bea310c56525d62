"""The command line: `fedsir COMMAND`. One module per command; nothing here loads torch until a command needs it."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what shells expect after Ctrl-C
STOPPED = "fedsir: stopped."


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while it still loads."""
    try:
        from fedsir.cli.app import main as run_command

        run_command()
    except KeyboardInterrupt:
        print(STOPPED, file=sys.stderr)
        sys.exit(INTERRUPTED)
    except SystemExit as left:
        if isinstance(getattr(left.__context__, "__cause__", None), KeyboardInterrupt):
            print(STOPPED, file=sys.stderr)  # typer has caught it and says nothing
        raise
