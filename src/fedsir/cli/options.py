"""Options that several commands share, and how they become a run's settings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsir.errors import ConfigError
from fedsir.models.config import is_dotted
from fedsir.runs.config import RunConfig
from fedsir.runs.recipes import resolve

Recipe = Annotated[
    str | None,
    typer.Argument(help="A recipe's name (`fedsir list recipes`) or a TOML file. Default: that of the data set."),
]
MethodName = Annotated[
    str | None, typer.Option("--method", help="Which method (`fedsir list methods`), or FILE.py:CLASS.")
]
Dataset = Annotated[
    str | None, typer.Option(help="digits, cifar10, cifar100, or the path of your own folder or npz file.")
]
Alpha = Annotated[float | None, typer.Option(help="Dirichlet concentration of the partition; small = uneven.")]
NoiseRate = Annotated[float | None, typer.Option(help="Share of wrong labels on noisy clients, 0 to 1.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of training.")]
Seed = Annotated[int | None, typer.Option(help="Root of every random draw.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. --set method.relabel.every=5. Repeatable."),
]
Workers = Annotated[
    int | None, typer.Option(help="Worker processes; the result does not depend on it. Default: all cores.")
]
Device = Annotated[str, typer.Option(help="Where models compute: cpu, cuda, cuda:1, mps.")]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where CIFAR and weights lie. Default: $FEDSIR_DATA, else the user's cache."),
]
Download = Annotated[bool, typer.Option("--download", help="Fetch missing public data, checked by their hash.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one line of JSON, the last one.")]


def settings(
    recipe: str | None,
    *,
    method: str | None,
    dataset: str | None,
    alpha: float | None,
    noise_rate: float | None,
    rounds: int | None,
    seed: int | None,
    assignments: list[str] | None,
    data_dir: Path | None = None,
    download: bool = False,
) -> RunConfig:
    """Return the settings that a command line asks for."""
    data = {"dataset": dataset, "alpha": alpha, "noise_rate": noise_rate}
    options: dict[str, Any] = {"rounds": rounds, "seed": seed}
    options = {key: value for key, value in options.items() if value is not None}
    if given := {key: value for key, value in data.items() if value is not None}:
        options["data"] = given
    if method is not None:
        options["method"] = {"name": method}
    return without_foreign_model(resolve(recipe, options, assignments or (), data_dir=data_dir, download=download))


def without_foreign_model(config: RunConfig) -> RunConfig:
    """Return the settings as they are, unless they name a model's code to import."""
    if is_dotted(config.model.name):
        raise ConfigError(
            f"model.name: {config.model.name!r} names code to import, which only the Python interface may do; "
            "a package can offer its model by an entry point of the group 'fedsir.models'."
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


def echo_json(value: Any) -> None:
    """Print one line of strict JSON: numbers that JSON has no word for are null."""
    from fedsir.runs.run_folder import strict_json

    typer.echo(json.dumps(strict_json(value), ensure_ascii=False, allow_nan=False))


def size(n_bytes: float) -> str:
    """Return a number of bytes for people."""
    power = min(int(math.log(max(n_bytes, 1), 1000)), 4)
    return f"{n_bytes / 1000**power:.{0 if power == 0 else 1}f} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
