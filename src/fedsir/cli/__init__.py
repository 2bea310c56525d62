"""The command line: `fedsir COMMAND`. One module per command; nothing here loads torch until a command needs it."""

from fedsir.cli.app import main

__all__ = ["main"]
