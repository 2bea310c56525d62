"""Sweep files: which runs belong to a sweep, as TOML.

recipe = "digits"              # where every run starts from; by default that of the data set
[settings]                     # what all runs share
data.alpha = 0.5
[[grid]]                       # every combination of these values; a file may have several grids
method.name = ["fedavg", "fedsir"]
data.noise_rate = [0.3, 0.6]
seed = [0, 1, 2]
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedsir.errors import ConfigError, did_you_mean
from fedsir.methods import method_file
from fedsir.runs.config import RunConfig, Tree, merge, read_toml, tree_of
from fedsir.runs.recipes import resolve

KEYS = ("recipe", "settings", "grid")


def read_sweep(
    path: Path, trusted: Collection[str] = (), *, data_dir: Path | None = None, download: bool = False
) -> list[RunConfig]:
    """Return the settings of every run that a sweep file asks for, in its order; the last key varies fastest.

    Parameters
    ----------
    trusted : methods in files (FILE.py:CLASS) whose code may be run; to know a method's settings is to run its file
    data_dir, download : as in `resolve`
    """
    tree = read_toml(path)
    for key in tree:
        if key not in KEYS:
            raise ConfigError(
                f"{path}: a sweep has no {key!r}.{did_you_mean(key, KEYS)} It has recipe, [settings], and [[grid]]s."
            )
    recipe, settings, grids = tree.get("recipe"), tree.get("settings", {}), tree.get("grid", [])
    if recipe is not None and not isinstance(recipe, str):
        raise ConfigError(f"{path}: recipe is a name or a file, not {recipe!r}.")
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{path}: settings is a table, as in [settings], not {settings!r}.")
    if isinstance(grids, Mapping):  # [grid], if there is one only
        grids = [grids]
    if not isinstance(grids, list) or not grids or not all(isinstance(grid, Mapping) for grid in grids):
        raise ConfigError(f"{path}: there is no [[grid]]: which values shall be run?")
    trees = [merge(settings, point) for grid in grids for point in _points(grid, path)]
    methods = {tree["method"].get("name") for tree in trees if isinstance(tree.get("method"), Mapping)}
    for name in methods:
        if isinstance(name, str) and method_file.is_in_file(name) and name not in trusted:
            raise ConfigError(f"{path} would run the code in {name}: if you trust it, say so with --method {name}.")
    if unused := [name for name in trusted if name not in methods or not method_file.is_in_file(name)]:
        raise ConfigError(
            f"--method {unused[0]}: is no code in a file that a run of {path} uses. Which methods are run it says "
            "itself (method.name); the option only says which FILE.py:CLASS you trust."
        )
    try:
        return [resolve(recipe, tree, data_dir=data_dir, download=download) for tree in trees]
    except ConfigError as problem:
        raise ConfigError(f"{path}: {problem}") from None


def _points(grid: Mapping[str, Any], path: Path) -> Iterator[Tree]:
    """Yield the settings of every combination in a grid."""
    axes = list(_axes(grid, path))
    if not axes:
        raise ConfigError(f"{path}: a grid is empty: which values shall be run? As in seed = [0, 1, 2].")
    for values in itertools.product(*(values for _, values in axes)):
        yield tree_of({key: value for (key, _), value in zip(axes, values, strict=True)})


def _axes(grid: Mapping[str, Any], path: Path, prefix: str = "") -> Iterator[tuple[str, list[Any]]]:
    for key, value in grid.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _axes(value, path, f"{name}.")
        elif isinstance(value, list) and value:
            yield name, value
        elif isinstance(value, list):
            raise ConfigError(f"{path}: {name} in a grid is empty: which values shall be run?")
        else:
            raise ConfigError(f"{path}: {name} in a grid is a list of values to try, as in {name} = [{value!r}].")
