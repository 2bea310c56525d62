"""`fedsir.run`: what `fedsir run` does, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsir.runs.config import merge, nested
from fedsir.runs.recipes import resolve


def run(
    recipe: str | None = None,
    *,
    method: str | None = None,
    dataset: str | Path | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    device: str = "cpu",
    data_dir: str | Path | None = None,
) -> dict[str, Any]:
    """Run an experiment, or go on with it where it stopped; return its result, the fields of `fedsir run --json`.

    Parameters
    ----------
    recipe
        A recipe's name or a TOML file; by default that of the data set.
    settings
        Any other settings by dotted key, e.g. ``{"data.alpha": 0.5, "method.relabel.every": 5}``. `model.name` may be
        ``"package.module:Class"`` here.
    out
        The run's folder; by default ``runs/NAME``, the same for the same settings.
    workers
        Worker processes. With more than one, call this under ``if __name__ == "__main__":``.
    """
    from fedsir.runs.runner import Where, default_out, run_experiment

    named = {
        "method.name": method,
        "data.dataset": None if dataset is None else str(dataset),
        "rounds": rounds,
        "seed": seed,
    }
    options: dict[str, Any] = {}
    for key, value in {**{k: v for k, v in named.items() if v is not None}, **(settings or {})}.items():
        options = merge(options, nested(key, value))
    config = resolve(recipe, options)
    folder = default_out(config) if out is None else Path(out)
    where = Where(folder, workers, device, None if data_dir is None else Path(data_dir))
    return run_experiment(config, where)
