"""`fedsir show`: a recipe's settings in full, as a file that `fedsir run` takes back."""

from __future__ import annotations

from fedsir.cli import options
from fedsir.cli.terminal import say, say_json


def show(
    recipe: options.Recipe = None,
    method: options.MethodName = None,
    dataset: options.Dataset = None,
    alpha: options.Alpha = None,
    noise_rate: options.NoiseRate = None,
    rounds: options.Rounds = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
    data_dir: options.DataDir = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Print every setting of a run, as TOML that `run` takes back."""
    config = options.settings(recipe, method, dataset, alpha, noise_rate, rounds, seed, assignments, data_dir, download)
    if as_json:
        say_json(config.tree())
    else:
        for line in config.to_toml().splitlines():
            say(line)
