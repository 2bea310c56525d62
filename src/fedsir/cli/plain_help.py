"""Help as plain text. Typer escapes brackets for rich's markup even where no markup is asked for."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

Context: Any = TyperGroup.context_class  # click's, of which newer versions of typer have a copy of their own


class _PlainFormatter(Context.formatter_class):  # type: ignore[misc]
    def write(self, string: str) -> None:
        super().write(string.replace("\\[", "["))


class _PlainContext(Context):  # type: ignore[misc]
    formatter_class = _PlainFormatter


class PlainGroup(TyperGroup):
    """A group of commands whose help, and its own, shows [required] and [default: …] as they are."""

    context_class = _PlainContext

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None:
            command.context_class = _PlainContext
        return command
