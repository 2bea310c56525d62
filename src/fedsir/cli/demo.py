"""`fedsir demo`: plain averaging and FedSIR on the same split of digits, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedsir.cli import options
from fedsir.cli.result_table import result_table
from fedsir.cli.run import execute
from fedsir.cli.terminal import say_json
from fedsir.runs.recipes import resolve


def demo(
    seed: Annotated[int, typer.Option(help="Seed of every random draw.")] = 0,
    noise_rate: Annotated[float, typer.Option(help="Share of wrong labels on noisy clients, 0 to 1.")] = 0.8,
    out: Annotated[Path, typer.Option(help="Folder for the two run folders.")] = Path("runs/demo"),
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Compare FedAvg and FedSIR on noisy digits in about half a minute.

    FedSIR finds the noisy clients and repairs their labels; FedAvg trusts every label.
    """
    results = {}
    for method in ("fedavg", "fedsir"):
        tree = {"seed": seed, "method": {"name": method}, "data": {"noise_rate": noise_rate}}
        folder = out / f"{method}-n{noise_rate:g}-s{seed}"
        results[method] = execute(resolve("digits", tree), out=folder, workers=options.n_workers(workers))
    if as_json:
        say_json({method: dict(result) for method, result in results.items()})
    else:
        result_table(list(results.values()))
