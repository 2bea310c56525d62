"""Recipes: named settings that come with fedsir, and how a command line's words turn into a run's settings.

A recipe is a TOML file of settings with two tables of its own: `summary`, a line for `fedsir list recipes`, and
`per_method.NAME`, settings that apply when the run's method is NAME.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedsir.data.source import DATASETS
from fedsir.errors import ConfigError, did_you_mean
from fedsir.experiment.config import RunConfig, Tree, merge, parse_assignment, parse_config
from fedsir.methods.base import MethodConfig

# The recipe that a bare `--dataset NAME` starts from; a path starts from the last one.
RECIPE_OF_DATASET = {"digits": "digits", "cifar10": "cifar10", "cifar100": "cifar100"}
RECIPE_OF_OWN_DATA = "own-data"


def recipe_names() -> dict[str, str]:
    """Return name → summary of the recipes that come with fedsir."""
    found = sorted(path.name for path in files("fedsir.recipes").iterdir() if path.name.endswith(".toml"))
    return {name.removesuffix(".toml"): load_recipe(name.removesuffix(".toml"))["summary"] for name in found}


def load_recipe(name: str) -> Tree:
    """Return a recipe as it is written: by name, or a user's own TOML file by path."""
    packaged = files("fedsir.recipes") / f"{name}.toml"
    if "/" not in name and "\\" not in name and packaged.is_file():
        return tomllib.loads(packaged.read_text(encoding="utf-8"))
    path = Path(name)
    if not path.is_file():
        known = recipe_names()
        raise ConfigError(
            f"There is no recipe or file {name!r}.{did_you_mean(name, known)} Recipes: {', '.join(known)}."
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not a TOML file: {problem}.") from None


def resolve(
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
) -> RunConfig:
    """Return a run's settings: recipe, then options (a tree), then `a.b=c` assignments, the later the stronger."""
    over: Tree = dict(options or {})
    for text in assignments:
        over = merge(over, parse_assignment(text))
    if "method" in over and not isinstance(over["method"], Mapping):
        raise ConfigError("method: name a setting of it, as in --set method.lr=0.001; --method names the method.")
    tree = load_recipe(recipe or default_recipe(over))
    tree.pop("summary", None)
    per_method = tree.pop("per_method", {})
    written_for = tree.get("method", {}).get("name")
    name = over.get("method", {}).get("name", written_for)
    if name != written_for:
        # What the recipe says about another method does not apply; what it says about training does.
        tree["method"] = {k: v for k, v in tree.get("method", {}).items() if k in MethodConfig.model_fields}
    return parse_config(merge(merge(tree, {"method": per_method.get(name, {})}), over))


def default_recipe(over: Mapping[str, Any]) -> str:
    """Return the recipe to start from when only a data set is named."""
    dataset = str(dict(over.get("data", {})).get("dataset", "digits"))
    if dataset in RECIPE_OF_DATASET:
        return RECIPE_OF_DATASET[dataset]
    if Path(dataset).exists():
        return RECIPE_OF_OWN_DATA
    raise ConfigError(
        f"There is no data set {dataset!r}, and no such file or folder.{did_you_mean(dataset, DATASETS)} "
        f"Known: {', '.join(DATASETS)}; or give the path of your own data."
    )
