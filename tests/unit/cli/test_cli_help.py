"""Help says something about every argument and option, in plain text."""

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from fedsir.cli.app import app


def commands(command: Any, context: Any) -> Iterator[tuple[str, Any, Any]]:
    yield context.command_path, command, context
    if hasattr(command, "list_commands"):
        for name in command.commands:
            inner = command.get_command(context, name)
            yield from commands(inner, inner.context_class(inner, info_name=name, parent=context))


ROOT = typer.main.get_command(app)
ALL = list(commands(ROOT, ROOT.context_class(ROOT, info_name="fedsir")))


@pytest.mark.parametrize(("command", "context"), [each[1:] for each in ALL], ids=[each[0] for each in ALL])
def test_every_parameter_is_explained(command: Any, context: Any) -> None:
    text = command.get_help(context)
    words = " ".join(text.split())
    assert "\\[" not in text
    for parameter in command.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        assert parameter.help, f"{context.command_path}: {parameter.name} has no help"
        if parameter.param_type_name == "argument" or not hasattr(command, "commands"):
            assert " ".join(parameter.help.split())[:30] in words, f"{context.command_path}: {parameter.name}"


def test_there_are_commands_below_groups() -> None:
    assert {"fedsir", "fedsir run", "fedsir audit apply", "fedsir flower new"} <= {name for name, _, _ in ALL}
