"""No setting without a description, and none that nothing reads."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from pydantic import BaseModel

import fedsir
from fedsir.methods.registry import known_methods, method_class
from fedsir.runs.config import RunConfig


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


def modules_of(method: str) -> set[str]:
    """Return the modules of a method's class and of what it derives from."""
    return {base.__module__ for base in method_class(method).__mro__}


SETTINGS = [
    (f"{prefix}{name}", model, name)
    for prefix, model in all_groups().items()
    for name, field in model.model_fields.items()
    if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel))
]


@cache
def reads() -> dict[str, set[tuple[str, str]]]:
    """Return attribute name → (module, class or "") whose code reads it, over the whole source."""
    found: dict[str, set[tuple[str, str]]] = {}

    def visit(node: ast.AST, module: str, owner: str) -> None:
        if isinstance(node, ast.ClassDef):
            owner = node.name
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.attr, set()).add((module, owner))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            for argument in node.args[:1]:  # values.get("preset"), before there is an object
                if isinstance(argument, ast.Constant):
                    found.setdefault(str(argument.value), set()).add((module, "get"))
        for child in ast.iter_child_nodes(node):
            visit(child, module, owner)

    root = Path(fedsir.__file__).parent
    for path in root.rglob("*.py"):
        module = ".".join(("fedsir", *path.relative_to(root).with_suffix("").parts))
        visit(ast.parse(path.read_text(encoding="utf-8")), module, "")
    return found


@pytest.mark.parametrize(("setting", "model", "name"), SETTINGS, ids=[s[0] for s in SETTINGS])
def test_a_setting_is_described_and_read(setting: str, model: type[BaseModel], name: str) -> None:
    description = model.model_fields[name].description
    assert description and len(description) > 4, f"{setting} has no description"
    assert readers_of(setting, model, name), f"nothing reads {setting}"


def readers_of(setting: str, model: type[BaseModel], name: str) -> set[tuple[str, str]]:
    """Return who reads a setting."""
    # A check inside the class that holds the setting is not a use of it.
    readers = {(module, owner) for module, owner in reads().get(name, set()) if owner != model.__name__}
    method, is_of_a_method, _ = setting.partition(": ")
    if not is_of_a_method:
        return readers
    # Another method's setting may have the same name.
    strangers = {method_class(other).__module__ for other in known_methods()} - modules_of(method)
    return {(module, owner) for module, owner in readers if module not in strangers}


def test_the_search_for_readers_would_notice() -> None:
    assert len(SETTINGS) > 40
    assert "a_setting_that_nobody_has" not in reads()
    assert reads()["min_class_samples"] and reads()["participation"]
    # FedCorr and FedNed read settings of this name; FedProx, which reads nothing of theirs, would be found out.
    assert readers_of("fedned: method.confidence", method_class("fedned").Config, "confidence")
    assert not readers_of("fedprox: method.confidence", method_class("fedprox").Config, "confidence")
