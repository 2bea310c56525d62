"""Options that several commands share, and how they become a run's settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsir.errors import ConfigError
from fedsir.models.config import is_dotted
from fedsir.runs.config import RunConfig, tree_of
from fedsir.runs.recipes import resolve

Recipe = Annotated[
    str | None,
    typer.Argument(help="Name of a recipe (`fedsir list recipes`), or a TOML file. Default: the data set's own."),
]
MethodName = Annotated[
    str | None, typer.Option("--method", help="Name of a method (`fedsir list methods`), or FILE.py:CLASS.")
]
Dataset = Annotated[
    str | None, typer.Option(help="digits, cifar10, cifar100, or the path of your own folder or npz file.")
]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet concentration of the partition; smaller is more uneven.")]
NoiseRate = Annotated[
    str | None,
    typer.Option(help="Share of wrong labels on noisy clients, 0 to 1; 0.1-0.9 draws one for each.", metavar="RATE"),
]
Rounds = Annotated[int | None, typer.Option(help="Number of rounds.")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random draw.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any other setting, as in --set method.relabel.every=5. Repeatable."
    ),
]
Workers = Annotated[
    int | None, typer.Option(help="Number of worker processes; it never changes the result. Default: all cores.")
]
Engine = Annotated[
    str, typer.Option(help="Where clients compute: local, or flower for Flower's simulation. Same result.")
]
Device = Annotated[str, typer.Option(help="Device that trains the models: cpu, cuda, cuda:1, mps.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Folder with CIFAR and weights. Default: $FEDSIR_DATA, else the user's cache."),
]
Download = Annotated[
    bool, typer.Option("--download", help="Download public data that are missing; their hash is checked.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, on the last line.")]


def settings(
    recipe: str | None,
    method: str | None,
    dataset: str | None,
    alpha: float | None,
    noise_rate: str | None,
    rounds: int | None,
    seed: int | None,
    assignments: list[str] | None,
    data_dir: Path | None,
    download: bool,
) -> RunConfig:
    """Return the settings that a command line asks for."""
    data = {"data.dataset": dataset, "data.alpha": alpha, "data.noise_rate": noise_rate}
    tree = tree_of({"method.name": method, **data, "rounds": rounds, "seed": seed})
    return without_foreign_model(resolve(recipe, tree, assignments or (), data_dir=data_dir, download=download))


def without_foreign_model(config: RunConfig) -> RunConfig:
    """Return the settings as they are, unless they name a model's code to import."""
    if is_dotted(config.model.name):
        raise ConfigError(
            f"model.name: {config.model.name!r} names code to import, which only the Python interface may do. "
            "A package can offer its model through the entry point group 'fedsir.models'."
        )
    return config


def n_workers(given: int | None) -> int:
    """Return how many worker processes to use: as told, else one per core this process may use."""
    if given is None:
        from fedsir.runs.provenance import cores

        return cores()
    if given < 1:
        raise ConfigError(f"workers: must be at least 1 (given: {given})")
    return given
