"""Faults in methods of the user's own: what is wrong, in which file and line, before training where possible."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.errors import ConfigError

if TYPE_CHECKING:
    from fedsir.methods.base import AnyMethod


@cache
def check_method(method: type[AnyMethod]) -> None:
    """Refuse a class that could not be run."""
    from fedsir.methods.reply_check import reply_type

    name = getattr(method, "name", None)
    if not isinstance(name, str) or not name:
        example = f'name = "{method.__name__.lower()}"'
        raise ConfigError(f"{place_of(method)}{method.__name__} has no name; add a line such as {example}.")
    if abstract := sorted(method.__abstractmethods__):
        raise ConfigError(f"{place_of(method)}{method.__name__} has no {abstract[0]}(…), which every method needs.")
    for function, words in ((method.start, ("fed", "model")), (method.round, ("t", "state", "fed"))):
        if not _takes(function, *words):
            written = f"def {function.__name__}(self, {', '.join(words)})"
            raise ConfigError(f"{place_of(function)}{method.__name__}.{function.__name__} must be {written}.")
    for task, function in {**method.tasks(), **method.server_tasks()}.items():
        try:
            reply_type(function)
        except TypeError as problem:
            raise ConfigError(f"{place_of(function)}{method.__name__}.{task} {problem}") from None


def place_of(code: type | Callable[..., Any]) -> str:
    """Return "FILE, line N: " of a class or function, nothing for fedsir's own."""
    code = getattr(code, "__func__", code)
    if code.__module__.partition(".")[0] == "fedsir":
        return ""
    try:
        return f"{inspect.getsourcefile(code)}, line {inspect.getsourcelines(code)[1]}: "
    except (OSError, TypeError):  # typed at a prompt: there is no file
        return ""


def fault_in(method: type[AnyMethod], problem: BaseException) -> str | None:
    """Return where in a method of the user's own a fault happened, and what it was; None if it was in fedsir."""
    own = {
        function.__code__.co_filename
        for kind in method.__mro__
        if kind.__module__.partition(".")[0] not in ("fedsir", "builtins", "typing", "abc")
        for function in vars(kind).values()
        if inspect.isfunction(function)
    }
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if frame.filename in own]
    return f"{frames[-1].filename}, line {frames[-1].lineno}: {said(problem)}" if frames else None


def place_in(file: Path, problem: BaseException) -> str:
    """Return the file, and the line of it in which running it failed, where that is known."""
    lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if Path(frame.filename) == file]
    line = problem.lineno if isinstance(problem, SyntaxError) else lines[-1] if lines else None
    return f"{file}, line {line}," if line else str(file)


def said(problem: BaseException) -> str:
    """Return an exception as one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())


def _takes(function: Callable[..., Any], *words: str) -> bool:
    try:
        inspect.signature(function).bind(None, *words)
    except TypeError:
        return False
    return True
