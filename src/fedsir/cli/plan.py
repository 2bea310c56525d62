"""`fedsir plan`: what a run would do, without running it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len

from fedsir.cli import options
from fedsir.cli.terminal import say, say_json, say_table, say_text, size, width
from fedsir.printable import printable
from fedsir.runs.progress import duration
from fedsir.text_table import shortened, shortened_names, text_table

MOST_ROWS = 30  # clients; of more, a summary and the extremes are shown
EXTREMES = 5  # clients at either end
LONGEST_CLASS = 14  # columns of a class name in a line with others
ROOM_FOR_CLASSES = 25  # columns that the largest classes of a client have at least


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
    """Show who holds which labels and what a run would cost.

    It trains a few timed steps, nothing else. On a narrow screen only the largest classes are shown; --json has all.
    """
    config = options.settings(recipe, method, dataset, alpha, noise_rate, rounds, seed, assignments, data_dir, download)
    from fedsir.runs.estimate import plan_run

    planned = plan_run(config, workers=options.n_workers(workers), data_dir=data_dir, download=download)
    if as_json:
        say_json(planned)
    else:
        _print(planned)


def _print(planned: dict[str, Any]) -> None:
    say(f"{planned['name']}: {planned['n_train']:,} training images, {planned['n_test']:,} test images")
    for note in planned["notes"]:
        say(f"note: {note}")
    sizes = planned["client_sizes"]
    if len(sizes) <= MOST_ROWS:
        is_whole = _print_clients(planned, list(sizes), "given labels by client")
    else:
        _print_summary(planned)
        by_size = sorted(sizes, key=sizes.__getitem__)  # ties in the order of the federation
        extremes = [*by_size[:EXTREMES], *by_size[-EXTREMES:]]
        title = f"given labels of the {EXTREMES} smallest and the {EXTREMES} largest clients"
        _print_clients(planned, extremes, title)
        is_whole = False
    if not is_whole:
        totals = np.sum(list(planned["given_label_counts"].values()), axis=0)
        say(f"given labels of all: {_largest(planned['class_names'], totals.tolist(), width() - 22)}")
        say("--json has every client and class.")
    estimate = planned["estimate"]
    say(
        f"about {duration(estimate['seconds'])} with {estimate['workers']} worker(s), "
        f"{size(estimate['memory_bytes'])} of memory, {size(estimate['model_bytes'])} per model on the wire"
    )
    cost = 1000 / estimate["images_per_second"]
    say_text(
        f"({estimate['model']}: {cost:,.{0 if cost >= 10 else 1}f} ms per image and training pass, timed just now on "
        "one core of this machine)",
        dim=True,
    )


def _print_summary(planned: dict[str, Any]) -> None:
    """Print a column of counts and quantiles for all clients, for the noisy ones and for the clean ones."""
    noisy = set(planned["noisy_clients"])
    everybody = list(planned["client_sizes"])
    groups = {"all": everybody}
    if planned["truth_is_known"] and noisy:
        groups["noisy"] = [client for client in everybody if client in noisy]
        clean = [client for client in everybody if client not in noisy]
        groups |= {"clean": clean} if clean else {}
    columns = [_described(planned, clients) for clients in groups.values()]
    rows = [(what, *(column[what] for column in columns)) for what in columns[0]]
    say_table((f"{len(everybody):,} clients", *groups), rows, is_shortened=False)


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


def _print_clients(planned: dict[str, Any], clients: list[str], title: str) -> bool:
    """Print a row per client; return whether there was room for every class. If not, the largest are shown."""
    names, counts, room = planned["class_names"], planned["given_label_counts"], width()
    noise, noisy = planned["noise_by_client"], set(planned["noisy_clients"])
    shown = shortened_names([printable(client) for client in clients], room // 4)
    header: tuple[str, ...] = ("client", "images", "labels", "noise")
    rows: list[tuple[str, ...]] = [
        (
            name,
            f"{planned['client_sizes'][client]:,}",
            "?" if not planned["truth_is_known"] else "noisy" if client in noisy else "clean",
            "?" if noise is None else f"{noise[client]:.0%}",
        )
        for client, name in zip(clients, shown, strict=True)
    ]
    whole = [(*row, *map(str, counts[client])) for client, row in zip(clients, rows, strict=True)]
    if is_whole := _n_columns((*header, *names), whole) <= room:
        say_table((*header, *names), whole, left=(0, 2), title=title)
    else:
        header = (*header, "classes")
        rows = [(*row, str(np.count_nonzero(counts[client]))) for client, row in zip(clients, rows, strict=True)]
        left_over = max(room - _n_columns(header, rows) - 2, ROOM_FOR_CLASSES)
        largest = [_largest(names, counts[client], left_over) for client in clients]
        rows = [(*row, text) for row, text in zip(rows, largest, strict=True)]
        say_table((*header, "the largest"), rows, left=(0, 2, 5), title=title, is_shortened=False)
    return is_whole


def _n_columns(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> int:
    return max(map(cell_len, text_table(header, rows)))


def _largest(names: list[str], counts: list[int], room: int) -> str:
    """Return the classes with most labels, as many as fit into so many columns, each with its count."""
    order = sorted(range(len(names)), key=lambda c: -counts[c])
    words = [f"{shortened(printable(names[c]), LONGEST_CLASS)} {counts[c]:,}" for c in order if counts[c]]
    text = ", ".join(words)
    while cell_len(text) > room and len(words) > 1:
        words.pop()
        text = ", ".join([*words, "…"])
    return text
