"""Every dependency is imported, and every import is declared."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OPTIONAL = {"pandas", "flwr", "ray", "cryptography"}  # to_frame and --engine flower say what to install

BOUND = {"click"}  # typer imports it; declared for the versions that go together


def imported_packages() -> set[str]:
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    return found - sys.stdlib_module_names - {"fedsir"}


def test_dependencies_are_what_is_imported() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {re.split(r"[^\w-]", entry)[0].lower() for entry in project["dependencies"]}
    distributions = packages_distributions()
    imported = {distributions[name][0].lower().replace("_", "-") for name in imported_packages() - OPTIONAL}
    assert imported == declared - BOUND
