"""`fedsir plan`: what a run would do, without running it."""

from __future__ import annotations

import json
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsir.cli import options

MOST_ROWS = 60
MOST_CLASSES = 20


def plan(
    recipe: options.Recipe = None,
    method: options.MethodName = None,
    dataset: options.Dataset = None,
    alpha: options.Alpha = None,
    noise_rate: options.NoiseRate = None,
    rounds: options.Rounds = None,
    seed: options.Seed = None,
    assignments: options.Assignments = None,
    workers: options.Workers = None,
    data_dir: options.DataDir = None,
    download: options.Download = False,
    as_json: options.Json = False,
) -> None:
    """Show who holds what, who is noisy, and what a run would cost. Trains nothing but two timed steps."""
    config = options.settings(
        recipe,
        method=method,
        dataset=dataset,
        alpha=alpha,
        noise_rate=noise_rate,
        rounds=rounds,
        seed=seed,
        assignments=assignments,
    )
    from fedsir.experiment.estimate import plan_run

    planned = plan_run(config, workers=options.n_workers(workers), data_dir=data_dir, download=download)
    if as_json:
        typer.echo(json.dumps(planned, ensure_ascii=False))
    else:
        _print(planned)


def _print(planned: dict[str, Any]) -> None:
    console = Console()
    headline = f"{planned['name']}: {planned['n_train']:,} training images, {planned['n_test']:,} test images"
    console.print(headline, markup=False)
    for note in planned["notes"]:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    console.print(_client_table(planned))
    if len(planned["client_sizes"]) > MOST_ROWS:
        console.print(f"… and {len(planned['client_sizes']) - MOST_ROWS} clients more (--json has them all)")
    estimate = planned["estimate"]
    console.print(
        f"about {options.duration(estimate['seconds'])} with {estimate['workers']} worker(s), "
        f"{options.size(estimate['memory_bytes'])} of memory, "
        f"{options.size(estimate['model_bytes'])} per model on the wire",
    )
    console.print(
        f"(from {estimate['images_per_second']:.0f} images/s, timed just now on one core of this machine)",
        style="dim",
    )


def _client_table(planned: dict[str, Any]) -> Table:
    names = planned["class_names"]
    table = Table(box=None, pad_edge=False, header_style="bold", title="given labels by client", title_justify="left")
    table.add_column("client", no_wrap=True, min_width=min(12, max(map(len, planned["client_sizes"]))))
    table.add_column("images", justify="right", no_wrap=True, min_width=6)
    table.add_column("labels", no_wrap=True, min_width=6)
    table.add_column("noise", justify="right", no_wrap=True, min_width=5)
    for name in names[:MOST_CLASSES]:
        table.add_column(Text(name), justify="right", overflow="ellipsis", max_width=7)
    if len(names) > MOST_CLASSES:
        table.add_column(f"+{len(names) - MOST_CLASSES}")
    noise, noisy = planned["noise_by_client"], set(planned["noisy_clients"])
    for client in list(planned["client_sizes"])[:MOST_ROWS]:
        verdict = "?" if not planned["truth_is_known"] else "noisy" if client in noisy else "clean"
        table.add_row(
            Text(client),  # names are the user's: a bracket in one is no markup
            f"{planned['client_sizes'][client]:,}",
            verdict,
            "?" if noise is None else f"{noise[client]:.0%}",
            *map(str, planned["given_label_counts"][client][:MOST_CLASSES]),
        )
    return table
