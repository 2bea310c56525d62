"""The command line: `fedsir COMMAND`. One module per command; nothing here loads torch until a command needs it."""

from __future__ import annotations

import sys

INTERRUPTED = 130  # what shells expect after Ctrl-C


class Stopped(Exception):
    """Ctrl-C in a command that can go on later; the message says how."""


def main() -> None:
    """Run the command line; Ctrl-C ends it without a traceback, also while it still loads."""
    try:
        from fedsir.cli.app import main as run_command

        run_command()
    except KeyboardInterrupt:
        print("fedsir: stopped.", file=sys.stderr)
        sys.exit(INTERRUPTED)
