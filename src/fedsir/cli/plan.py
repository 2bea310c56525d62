"""`fedsir plan`: what a run would do, without running it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedsir.cli import options
from fedsir.runs.progress import duration

MOST_ROWS = 30  # clients; of more, a summary and the extremes are shown
EXTREMES = 5  # clients at either end
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
        data_dir=data_dir,
        download=download,
    )
    from fedsir.runs.estimate import plan_run

    planned = plan_run(config, workers=options.n_workers(workers), data_dir=data_dir, download=download)
    if as_json:
        options.echo_json(planned)
    else:
        _print(planned)


def _print(planned: dict[str, Any]) -> None:
    console = Console()
    headline = f"{planned['name']}: {planned['n_train']:,} training images, {planned['n_test']:,} test images"
    console.print(headline, markup=False)
    for note in planned["notes"]:
        console.print(f"note: {note}", highlight=False, markup=False, soft_wrap=True)
    sizes = planned["client_sizes"]
    if len(sizes) <= MOST_ROWS:
        console.print(_client_table(planned, list(sizes), "given labels by client"))
    else:
        console.print(_summary_table(planned))
        by_size = sorted(sizes, key=sizes.__getitem__)  # ties in the order of the federation
        extremes = [*by_size[:EXTREMES], *by_size[-EXTREMES:]]
        title = f"given labels of the {EXTREMES} smallest and the {EXTREMES} largest clients"
        console.print(_client_table(planned, extremes, title))
        totals = np.sum(list(planned["given_label_counts"].values()), axis=0)
        of_all = [f"{name} {n:,}" for name, n in zip(planned["class_names"], totals, strict=True)]
        more = f", … {len(of_all) - MOST_CLASSES} classes more" if len(of_all) > MOST_CLASSES else ""
        line = f"given labels of all: {', '.join(of_all[:MOST_CLASSES])}{more}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
        console.print("--json has every client.")
    estimate = planned["estimate"]
    console.print(
        f"about {duration(estimate['seconds'])} with {estimate['workers']} worker(s), "
        f"{options.size(estimate['memory_bytes'])} of memory, "
        f"{options.size(estimate['model_bytes'])} per model on the wire",
    )
    cost = 1000 / estimate["images_per_second"]
    console.print(
        f"({estimate['model']}: {cost:,.{0 if cost >= 10 else 1}f} ms per image and training pass, timed just now on "
        "one core of this machine)",
        style="dim",
    )


def _summary_table(planned: dict[str, Any]) -> Table:
    """Return a column of counts and quantiles for all clients, for the noisy ones and for the clean ones."""
    noisy = set(planned["noisy_clients"])
    everybody = list(planned["client_sizes"])
    groups = {"all": everybody}
    if planned["truth_is_known"] and noisy:
        groups["noisy"] = [client for client in everybody if client in noisy]
        clean = [client for client in everybody if client not in noisy]
        groups |= {"clean": clean} if clean else {}
    columns = [_described(planned, clients) for clients in groups.values()]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"{len(everybody):,} clients", no_wrap=True)
    for group in groups:
        table.add_column(group, justify="right", no_wrap=True)
    for what in columns[0]:
        table.add_row(what, *(column[what] for column in columns))
    return table


def _described(planned: dict[str, Any], clients: list[str]) -> dict[str, str]:
    """Return what there is to say of a group of clients: counts, quantiles, extremes."""
    sizes = np.array([planned["client_sizes"][client] for client in clients])
    n_classes = np.array([np.count_nonzero(planned["given_label_counts"][client]) for client in clients])
    fewest, lower, median, upper, most = np.quantile(sizes, (0, 0.25, 0.5, 0.75, 1))
    return {
        "how many": f"{len(clients):,}",
        "images": f"{sizes.sum():,}",
        "images each, from … to": f"{fewest:,.0f} to {most:,.0f}",
        "images each, middle half": f"{lower:,.0f} to {upper:,.0f}",
        "images each, median": f"{median:,.0f}",
        "classes each, from … to": f"{n_classes.min()} to {n_classes.max()}",
        **_wrong(sizes, planned["noise_by_client"], clients),
    }


def _wrong(sizes: NDArray[np.int64], noise: dict[str, float] | None, clients: list[str]) -> dict[str, str]:
    if noise is None:
        return {"wrong labels": "?"}
    rates = np.array([noise[client] for client in clients])
    return {
        "wrong labels": f"{np.average(rates, weights=sizes):.0%}",
        "wrong labels each, from … to": f"{rates.min():.0%} to {rates.max():.0%}",
    }


def _client_table(planned: dict[str, Any], clients: list[str], title: str) -> Table:
    names = planned["class_names"]
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("client", no_wrap=True, min_width=min(12, max(map(len, clients))))
    table.add_column("images", justify="right", no_wrap=True, min_width=6)
    table.add_column("labels", no_wrap=True, min_width=6)
    table.add_column("noise", justify="right", no_wrap=True, min_width=5)
    for name in names[:MOST_CLASSES]:
        table.add_column(Text(name), justify="right", overflow="ellipsis", max_width=7)
    if len(names) > MOST_CLASSES:
        table.add_column(f"+{len(names) - MOST_CLASSES}")
    noise, noisy = planned["noise_by_client"], set(planned["noisy_clients"])
    for client in clients:
        verdict = "?" if not planned["truth_is_known"] else "noisy" if client in noisy else "clean"
        table.add_row(
            Text(client),  # names are the user's: a bracket in one is no markup
            f"{planned['client_sizes'][client]:,}",
            verdict,
            "?" if noise is None else f"{noise[client]:.0%}",
            *map(str, planned["given_label_counts"][client][:MOST_CLASSES]),
        )
    return table
