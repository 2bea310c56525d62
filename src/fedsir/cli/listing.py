"""`fedsir list`: what there is to choose from."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from fedsir.cli import options
from fedsir.cli.terminal import say_json, say_table


class Kind(StrEnum):
    """What can be listed."""

    methods = "methods"
    datasets = "datasets"
    recipes = "recipes"
    models = "models"
    reproductions = "reproductions"


def list_(
    kind: Annotated[Kind, typer.Argument(help="What to list.", show_default=False)],
    as_json: options.Json = False,
) -> None:
    """List methods, datasets, recipes, models or reproductions.

    Reproductions are the tables and figures of the paper that `fedsir reproduce` makes.
    """
    found = _found(kind)
    if as_json:
        say_json(found)
    else:
        say_table((), list(found.items()), is_shortened=False, left=(0, 1))


def _found(kind: Kind) -> dict[str, str]:
    """Return name → what it is; only what is asked for is loaded."""
    if kind is Kind.methods:
        from fedsir.methods.registry import known_methods

        return known_methods()
    if kind is Kind.recipes:
        from fedsir.runs.recipes import recipe_names

        return recipe_names()
    if kind is Kind.models:
        from fedsir.models.config import available_models

        return available_models()
    if kind is Kind.reproductions:
        from fedsir.paper.tables import FIGURES, TABLES

        return {name: made.title for name, made in (TABLES | FIGURES).items()}
    from fedsir.data.source import DATASETS

    return {
        name: f"{info.description}; {info.n_classes} classes, {info.image_shape}; {info.how_to_get}"
        for name, info in DATASETS.items()
    } | {"PATH": "your own: a folder client/class/image, or an npz with images, labels[, clients, split]"}
