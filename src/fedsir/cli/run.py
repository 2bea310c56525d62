"""`fedsir run`: one experiment, from settings to result; the same command again goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsir.cli import Stopped, options
from fedsir.cli.result_table import result_table
from fedsir.cli.terminal import say_json

if TYPE_CHECKING:
    from fedsir.runs.config import RunConfig
    from fedsir.runs.progress import RoundLines
    from fedsir.runs.result import RunResult


def run(
    recipe: options.Recipe = None,
    method: options.MethodName = None,
    dataset: options.Dataset = None,
    alpha: options.Alpha = None,
    noise_rate: options.NoiseRate = None,
    rounds: options.Rounds = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the run. Default: runs/NAME, the same for the same settings."),
    ] = None,
    workers: options.Workers = None,
    device: options.Device = "cpu",
    engine: options.Engine = "local",
    data_dir: options.DataDir = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Run an experiment; the same command goes on where it stopped.

    Examples: `fedsir run`, `fedsir run --method fedavg --noise-rate 0.4`, `fedsir run cifar10-cpu --data-dir DATA`,
    `fedsir run --dataset my_images/ --set method.identify.split=auto`.
    """
    config = options.settings(recipe, method, dataset, alpha, noise_rate, rounds, seed, assignments, data_dir, download)
    result = execute(
        config,
        out=out,
        workers=options.n_workers(workers),
        device=device,
        engine=engine,
        data_dir=data_dir,
        download=download,
    )
    if as_json:
        say_json(dict(result))
    else:
        result_table([result])


def execute(
    config: RunConfig,
    *,
    out: Path | None,
    workers: int,
    device: str = "cpu",
    engine: str = "local",
    data_dir: Path | None = None,
    download: bool = False,
) -> RunResult:
    """Run with progress on the error stream; Ctrl-C leaves a run that can go on, and says so."""
    from fedsir.runs.runner import RunTarget, default_out, run_experiment

    folder = out if out is not None else default_out(config)
    progress = _progress()
    try:
        return run_experiment(config, RunTarget(folder, workers, device, data_dir, download, progress, engine))
    except KeyboardInterrupt:
        progress.close()  # first: a live table would draw over the line
        raise Stopped(f"the same command goes on from the last round in {folder}.") from None
    finally:
        progress.close()


def _progress() -> RoundLines:
    from rich.console import Console

    from fedsir.runs.progress import LiveTable, RoundLines

    console = Console(stderr=True)
    return LiveTable(console) if console.is_terminal and not console.is_dumb_terminal else RoundLines(console)
