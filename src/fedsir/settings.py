"""What is wrong with a setting, in one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from fedsir.errors import ConfigError, did_you_mean

NUMERIC = re.compile(r"^(?!.*(bool|Literal)).*\b(int|float)\b")  # in what a field is declared as
LARGEST = 2**63  # TOML has no integers from here on


def explain(problem: ValidationError, model: type[BaseModel], prefix: str) -> str:
    """Return the first fault of a validation as one line."""
    error = problem.errors()[0]
    key = prefix + ".".join(str(part) for part in error["loc"] if not str(part).startswith("function-"))
    if error["type"] == "extra_forbidden":
        known = _keys_at(model, error["loc"][:-1])
        hint = did_you_mean(str(error["loc"][-1]), known) or f" Known: {', '.join(sorted(known))}."
        return f"There is no setting {shortened(key)}.{hint}"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    given = error["input"]
    shown = "" if isinstance(given, Mapping | BaseModel) else f" (given: {shortened(given)})"
    must = "must be " if error["msg"].startswith("Input should be ") else ""
    return f"{key or 'settings'}: {must}{message}{shown}"


def refuse_odd_values(tree: Mapping[str, Any], model: type[BaseModel], prefix: str = "") -> None:
    """Raise an error for what pydantic takes but no file can hold, or nobody means: true where a number belongs."""
    fields = model.model_fields
    for name, value in tree.items():
        key = f"{prefix}{name}"
        annotation = fields[name].annotation if name in fields else None
        if isinstance(value, Mapping):
            is_group = isinstance(annotation, type) and issubclass(annotation, BaseModel)
            refuse_odd_values(value, annotation if is_group else BaseModel, f"{key}.")  # type: ignore[arg-type]
            continue
        for leaf in (key, *_leaves(value)):
            if isinstance(leaf, bool) and NUMERIC.search(str(annotation)):
                raise ConfigError(f"{key}: must be a number (given: {str(leaf).lower()})")
            if isinstance(leaf, int) and abs(leaf) >= LARGEST:
                raise ConfigError(f"{key}: is too large a number (given: {shortened(leaf)})")
            if isinstance(leaf, str) and not _can_be_written(leaf):
                raise ConfigError(f"{shortened(key)}: is not valid text (given: {shortened(leaf)})")


def shortened(value: Any, length: int = 100) -> str:
    """Return a value as Python writes it, cut short where it is very long."""
    try:
        text = repr(value)
    except ValueError:  # Python does not write integers of thousands of digits
        return "a very long number"
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _leaves(entry)
    else:
        yield value


def _can_be_written(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    for part in loc:
        annotation = model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)
