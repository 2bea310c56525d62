"""How often Stage I names exactly the bad sites when it compares them pair by pair of classes (`split = pairwise`).

    python results/class_pairs.py --data-dir DATA

Three parts:

few sites   the federations of few_sites.py, draws 0 to 19, and more of them: frozen ImageNet features of CIFAR-10,
            1,000 images a site, symmetric noise; `auto` beside it
one-sided   four and ten of these sites, one of them bad: 40 % of its cats are called dogs, and so on; `rates` beside it
trained     digits by its recipe, where each of ten clients has trained a model of its own for ten epochs; α = 2, as few
            clean clients as cover all classes, seeds 0 to 9; `always` and `auto` beside it

Rows that class-pairs.csv has already are not measured again. Writes class-pairs.csv and .md next to this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from few_sites import N_CLASSES, federation, frozen_features
from stored_rows import add, stored

import fedsir
from fedsir.data.cifar_facts import CIFAR10
from fedsir.data.noise import flip_to
from fedsir.randomness import KeyedRandom
from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats, pair_similarities
from fedsir.stages.pairwise import split_by_pairs
from fedsir.stages.spectrum import Features, Labels, class_features
from fedsir.stages.split import ClientSplit, OffDiagonal, split_clients

SITES = ((3, 1), (4, 1), (4, 2), (6, 1), (6, 3), (10, 1), (10, 5), (10, 7))  # and how many of them are bad
ALPHAS, RATES, DRAWS = (0.5, 100.0), (0.1, 0.2, 0.4), 20
DIGITS_RATES, SEEDS = (0.0, 0.1, 0.2, 0.3, 0.6, 0.9), 10
MIN_CLASS_SAMPLES = 5
OUTPUT = Path(__file__).with_name("class-pairs.csv")
SPLITS = ("always", "auto", "pairwise", "rates")
Key = tuple[str, int, int, float, float, int]  # part, sites, bad ones, α, noise rate, draw
Row = dict[str, str]


def keys() -> Iterator[Key]:
    """Yield all that is measured. Without noise it does not matter how many would be bad: they are 0."""
    for draw in range(DRAWS):
        for alpha in ALPHAS:
            yield from (("few sites", n, 0, alpha, 0.0, draw) for n in dict(SITES))
            yield from (("few sites", n, bad, alpha, rate, draw) for n, bad in SITES for rate in RATES)
            yield from (("one-sided", n, 1, alpha, 0.4, draw) for n in (4, 10))
    yield from (("trained", 10, 0, 2.0, rate, seed) for seed in range(SEEDS) for rate in DIGITS_RATES)


def measure_frozen(features: Features, labels: Labels, key: Key) -> dict[str, ClientSplit | fedsir.Identification]:
    """Return the verdicts on sites 0, 1, …, of which the first are bad."""
    part, n_sites, n_bad, alpha, rate, draw = key
    rows, given, owner = federation(labels, n_sites, n_bad, alpha, rate if part == "few sites" else 0.0, draw)
    if part == "one-sided":
        mine = owner < n_bad
        random = KeyedRandom(draw, ("one-sided", str(n_sites), str(alpha)))
        given[mine] = flip_to(labels[rows[mine]], CIFAR10.confused_with, rate, random)
    statistics, pairs = {}, {}
    for site in range(n_sites):
        collected = class_features(features[rows[owner == site]], given[owner == site], N_CLASSES)
        directions = class_directions(collected, MIN_CLASS_SAMPLES)
        statistics[str(site)] = off_diagonal_stats(class_similarity(directions))
        pairs[str(site)] = pair_similarities(collected, directions)
    found = {"auto": split_clients(statistics, "auto"), "pairwise": split_by_pairs(statistics, pairs)}
    if part == "few sites":
        return found
    return {**found, "rates": fedsir.identify(features[rows], given, owner.astype(str), split="rates")}


def measure_trained(key: Key) -> tuple[dict[str, ClientSplit], set[str]]:
    """Return the verdicts after local training on digits, and who is noisy."""
    *_, alpha, rate, seed = key
    data = fedsir.FederatedData.load("digits", alpha=alpha, noise_rate=rate, seed=seed)
    with fedsir.simulate(data, "fedsir", seed=seed, settings={"method.identify.split": "pairwise"}) as simulation:
        split = next(simulation).split  # round 0 is Stage I
    assert split is not None, "FedSIR splits clients"
    counted = {k: OffDiagonal(mean, energy, data.n_classes) for k, (mean, energy) in split.statistics.items()}
    found = {"always": split_clients(counted), "auto": split_clients(counted, "auto"), "pairwise": split}
    return found, set(data.truth.noisy_clients)


def row_of(key: Key, found: dict[str, ClientSplit | fedsir.Identification], bad: set[str]) -> Row:
    """Return how many clients each split put on the wrong side; a split that was not tried has an empty cell."""
    wrong = {name: len(set(split.noisy) ^ bad) for name, split in found.items()}
    named = dict(zip(("part", "sites", "bad", "alpha", "rate", "draw"), map(str, key), strict=True))
    return named | {f"{name}_wrong": str(wrong.get(name, "")) for name in SPLITS}


def n_right(rows: Sequence[Row], split: str) -> int:
    return sum(row[f"{split}_wrong"] == "0" for row in rows)


def few_sites_table(rows: Sequence[Row]) -> str:
    """Return the draws that `auto` and `pairwise` get right: a row per federation and α, a column per noise rate."""
    lines = ["| sites | bad | α | nobody bad | 10% | 20% | 40% |", "|" + "---:|" * 7]
    for n_sites, n_bad in SITES:
        for alpha in ALPHAS:
            cells = []
            for rate in (0.0, *RATES):
                here = (str(n_sites), str(n_bad if rate else 0), str(alpha), str(rate))
                drawn = [row for row in rows if (row["sites"], row["bad"], row["alpha"], row["rate"]) == here]
                is_new = rate > 0 or n_bad == 1  # once per number of sites
                cells.append(f"{n_right(drawn, 'auto')} → **{n_right(drawn, 'pairwise')}**" if is_new else "")
            lines.append(f"| {n_sites} | {n_bad} | {alpha:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


def one_sided_table(rows: Sequence[Row]) -> str:
    """Return the draws that three splits get right: a row per number of sites and α."""
    lines = ["| sites | bad | α | auto | pairwise | rates |", "|" + "---:|" * 6]
    for n_sites, alpha in dict.fromkeys((row["sites"], row["alpha"]) for row in rows):
        drawn = [row for row in rows if (row["sites"], row["alpha"]) == (n_sites, alpha)]
        cells = " | ".join(str(n_right(drawn, split)) for split in ("auto", "pairwise", "rates"))
        lines.append(f"| {n_sites} | 1 | {float(alpha):g} | {cells} |")
    return "\n".join(lines)


def trained_table(rows: Sequence[Row]) -> str:
    """Return the seeds that each split gets right, and the mean number of clients on the wrong side."""
    lines = ["| noise rate | always | auto | pairwise |", "|---|---:|---:|---:|"]
    for rate in DIGITS_RATES:
        drawn = [row for row in rows if row["rate"] == str(rate)]
        cells = [
            f"{n_right(drawn, split)} ({mean(int(row[f'{split}_wrong']) for row in drawn):.1f})" for split in SPLITS[:3]
        ]
        lines.append(f"| {'nobody noisy' if rate == 0 else f'{rate:g}'} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {"few sites": few_sites_table, "one-sided": one_sided_table, "trained": trained_table}


def tables(rows: Sequence[Row]) -> str:
    """Return the three tables, each under its heading."""
    made = {part: table([row for row in rows if row["part"] == part]) for part, table in TABLES.items()}
    return "\n".join(f"## {part}\n\n{table}\n" for part, table in made.items())


def main() -> None:
    """Measure what is missing, one line of the CSV at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 and the weights lie; default: $FEDSIR_DATA")
    said = parser.parse_args()
    done = {tuple(row.values())[:6] for row in stored(OUTPUT)}
    wanted = [key for key in keys() if tuple(map(str, key)) not in done]
    features = labels = np.zeros(0)
    if any(key[0] != "trained" for key in wanted):
        features, labels = frozen_features(said.data_dir)
    for key in wanted:
        if key[0] == "trained":
            row = row_of(key, *measure_trained(key))
        else:
            row = row_of(key, measure_frozen(features, labels, key), {str(site) for site in range(key[2])})
        add(OUTPUT, [row])
    OUTPUT.with_suffix(".md").write_text(tables(stored(OUTPUT)), encoding="utf-8")
    print(tables(stored(OUTPUT)), end="")


if __name__ == "__main__":
    main()
