"""No setting without a description, and none that nothing reads."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import fedsir
from fedsir.experiment.config import RunConfig
from fedsir.methods.registry import known_methods, method_class


def groups(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield (dotted name, class) of a group of settings and of those inside it."""
    yield prefix, model
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel) and name != "method":
            yield from groups(field.annotation, f"{prefix}{name}.")


def all_groups() -> dict[str, type[BaseModel]]:
    found = dict(groups(RunConfig, ""))
    for name in known_methods():
        found |= dict(groups(method_class(name).Config, f"{name}: method."))
    return found


SETTINGS = [
    (f"{prefix}{name}", model, name)
    for prefix, model in all_groups().items()
    for name, field in model.model_fields.items()
    if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
]


@cache
def reads() -> dict[str, set[str]]:
    """Return attribute name → classes (or "" outside of any) whose code reads it, over the whole source."""
    found: dict[str, set[str]] = {}

    def visit(node: ast.AST, owner: str) -> None:
        if isinstance(node, ast.ClassDef):
            owner = node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.attr, set()).add(owner)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            for argument in node.args[:1]:  # values.get("preset"), before there is an object
                if isinstance(argument, ast.Constant):
                    found.setdefault(str(argument.value), set()).add("get")
        for child in ast.iter_child_nodes(node):
            visit(child, owner)

    for path in Path(fedsir.__file__).parent.rglob("*.py"):
        visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


@pytest.mark.parametrize(("setting", "model", "name"), SETTINGS, ids=[s[0] for s in SETTINGS])
def test_a_setting_is_described_and_read(setting: str, model: type[BaseModel], name: str) -> None:
    description = model.model_fields[name].description
    assert description and len(description) > 4, f"{setting} has no description"
    readers = reads().get(name, set())
    # A check inside the class that holds the setting is not a use of it.
    assert readers - {model.__name__}, f"nothing reads {setting}"


def test_the_search_for_readers_would_notice() -> None:
    assert len(SETTINGS) > 40
    assert "a_setting_that_nobody_has" not in reads()
    assert reads()["min_class_samples"] and reads()["participation"]
