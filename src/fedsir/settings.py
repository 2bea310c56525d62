"""What is wrong with a setting, in one line."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ValidationError

from fedsir.errors import did_you_mean

LONGEST = 100  # characters of a value that a message repeats


def explain(problem: ValidationError, model: type[BaseModel], prefix: str) -> str:
    """Return the first fault of a validation as one line."""
    error = problem.errors()[0]
    key = prefix + ".".join(str(part) for part in error["loc"] if not str(part).startswith("function-"))
    if error["type"] == "extra_forbidden":
        known = _keys_at(model, error["loc"][:-1])
        hint = did_you_mean(str(error["loc"][-1]), known) or f" Known: {', '.join(sorted(known))}."
        return f"There is no setting {key!r}.{hint}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    given = error["input"]
    shown = "" if isinstance(given, Mapping | BaseModel) else f" (given: {_short(given)})"
    must = "must be " if error["msg"].startswith("Input should be ") else ""
    return f"{key or 'settings'}: {must}{message}{shown}"


def _short(given: object) -> str:
    try:
        text = repr(given)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
