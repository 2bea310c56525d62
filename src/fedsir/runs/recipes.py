"""Recipes: named settings that come with fedsir, and how a command line's words turn into a run's settings.

A recipe is a TOML file of settings with two tables of its own: `summary`, a line for `fedsir list recipes`, and
`per_method.NAME`, settings that apply when the run's method is NAME.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fedsir.data.directory import data_directory
from fedsir.data.source import DATASETS, peek_image_size
from fedsir.errors import ConfigError, did_you_mean
from fedsir.methods import method_file
from fedsir.methods.registry import BUILT_IN, config_class
from fedsir.methods.settings import MethodConfig
from fedsir.models.config import imagenet_file
from fedsir.runs.config import RunConfig, Tree, merge, parse_assignment, parse_config, read_toml
from fedsir.settings import shortened

# The recipe that a bare `--dataset NAME` starts from; a path starts from the last one.
RECIPE_OF_DATASET = {"digits": "digits", "cifar10": "cifar10", "cifar100": "cifar100"}
RECIPE_OF_OWN_DATA = "own-data"
RECIPE_OF_OWN_PHOTOS = "own-photos"  # for images from LARGE on, where ImageNet weights are at hand
AUTO = "auto"  # as a recipe's model.name: a small network that suits the size of the images
LARGE = 32  # pixels of the shorter side


def recipe_names() -> dict[str, str]:
    """Return name → summary of the recipes that come with fedsir."""
    return {name: load_recipe(name)["summary"] for name in _packaged_names()}


@cache
def _packaged_names() -> tuple[str, ...]:
    found = (path.name for path in files("fedsir.recipes").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml")))


@cache
def _packaged(name: str) -> Tree:
    return tomllib.loads((files("fedsir.recipes") / f"{name}.toml").read_text(encoding="utf-8"))


def load_recipe(name: str) -> Tree:
    """Return a recipe as it is written: by name, or a user's own TOML file by path."""
    if name in (packaged := _packaged_names()):
        return dict(_packaged(name))  # read once: a sweep asks tens of thousands of times
    path = Path(name)
    if not os.path.isfile(path):  # noqa: PTH113 - False, not an error, for a name that is too long
        raise ConfigError(
            f"There is no recipe or file {shortened(name, 320)}.{did_you_mean(name, packaged)} "
            f"Recipes: {', '.join(packaged)}."
        )
    return read_toml(path)


def resolve(
    recipe: str | None = None,
    options: Mapping[str, Any] | None = None,
    assignments: Sequence[str] = (),
    *,
    data_dir: Path | None = None,
    download: bool = False,
    image_size: tuple[int, int] | None = None,
) -> RunConfig:
    """Return a run's settings: recipe, then options (a tree), then `a.b=c` assignments, the later the stronger.

    Parameters
    ----------
    data_dir, download : where pretrained weights lie, and whether they may be fetched: the recipe for own images
        depends on it if none is named
    image_size : height and width of images that are in memory; those of a path are looked at
    """
    over: Tree = dict(options or {})
    for text in assignments:
        over = merge(over, parse_assignment(text))
    _table(over, "method", " A method is named by method.name, or --method.")
    _table(over, "data")
    tree = load_recipe(recipe or _default_recipe(over, image_size, data_dir=data_dir, download=download))
    tree.pop("summary", None)
    per_method = _table(tree, "per_method")
    tree.pop("per_method", None)
    for method in per_method:
        # A misspelt one would never apply. Code in a file is run only if it is the method that was named.
        if method not in BUILT_IN and not method_file.is_in_file(method):
            config_class(method)
    written_for = _table(tree, "method").get("name")
    name = str(_table(over, "method").get("name", written_for))
    if method_file.is_in_file(str(written_for)) and "name" not in _table(over, "method"):
        raise ConfigError(
            f"method.name: these settings would run the code in {written_for}: if you trust it, name it with --method."
        )
    if name != written_for:
        # What the recipe says about another method does not apply; what it says about training does.
        tree["method"] = {k: v for k, v in tree.get("method", {}).items() if k in MethodConfig.model_fields}
    tree = merge(tree, {"method": _table(per_method, name)})
    if isinstance(preset := _table(over, "method").get("preset"), str):
        # A recipe speaks of the preset that it was written for; whoever names another one means all of it.
        tree = merge(tree, {"method": config_class(name).presets.get(preset, {})})
    tree = merge(tree, over)
    if _table(tree, "model").get("name") == AUTO:
        small = "strided_cnn" if _are_large(_table(tree, "data"), image_size) else "small_cnn"
        tree = merge(tree, {"model": {"name": small}})
    return parse_config(tree)


def _are_large(data: Mapping[str, Any], image_size: tuple[int, int] | None) -> bool:
    """Tell whether images have LARGE pixels or more each way: as given, as asked for, or as they lie there."""
    asked: Any = data.get("image_size")
    found = image_size or ([asked] if isinstance(asked, int) else asked)
    sides = found or peek_image_size(str(data.get("dataset", "digits"))) or (0,)
    return all(isinstance(side, int) and side >= LARGE for side in sides)


def _table(tree: Mapping[str, Any], key: str, advice: str = "") -> Mapping[str, Any]:
    """Return the table of that name, empty if there is none; a plain value in its place is an error."""
    value = tree.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"{key}: is a table of settings ({key}.NAME = VALUE), not {shortened(value)}.{advice}")
    return value


def _default_recipe(
    over: Mapping[str, Any], image_size: tuple[int, int] | None, *, data_dir: Path | None, download: bool
) -> str:
    """Return the recipe to start from when only a data set is named, or images in memory."""
    dataset = str(_table(over, "data").get("dataset", "digits"))
    if dataset in RECIPE_OF_DATASET and image_size is None:
        return RECIPE_OF_DATASET[dataset]
    if image_size or os.path.exists(dataset):  # noqa: PTH110 - False, not an error, for a name that is too long
        is_free = "name" not in _table(over, "model") and _are_large(_table(over, "data"), image_size)
        has_weights = download or imagenet_file(data_directory(data_dir)) is not None
        return RECIPE_OF_OWN_PHOTOS if is_free and has_weights else RECIPE_OF_OWN_DATA
    raise ConfigError(
        f"There is no data set {shortened(dataset, 320)}, and no such file or folder.{did_you_mean(dataset, DATASETS)} "
        f"Known: {', '.join(DATASETS)}; or give the path of your own data."
    )
