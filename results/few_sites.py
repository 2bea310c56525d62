"""How often Stage I names exactly the bad sites, by number of sites, noise rate, and how differently classes are dealt.

Features are those of the ImageNet network, untouched: nothing is trained. Each site has 1,000 training images of
CIFAR-10, dealt by class (Dirichlet, α) anew DRAWS times. Symmetric noise. Side by side: the paper's two numbers with
evidence for two groups (`auto`) and noise rates (`rates`).

    python results/few_sites.py --data-dir DATA --draws 10

Writes few-sites.csv and .md next to this file; a cell that is there already is not measured again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from stored_rows import add, stored

import fedsir
from fedsir.data.directory import data_directory
from fedsir.data.noise import symmetric
from fedsir.models.config import ModelConfig
from fedsir.models.initial import initial_model
from fedsir.models.weights import load_weights
from fedsir.randomness import KeyedRandom
from fedsir.stages.spectrum import Features, Labels
from fedsir.stages.split import OffDiagonal, split_clients

N_IMAGES, N_POOL, N_CLASSES, BATCH = 1000, 20_000, 10, 500
# Sites, and how many of them are bad.
FEDERATIONS = ((3, 1), (4, 1), (6, 1), (10, 1), (4, 2), (10, 7))
CONDITIONS = [
    (n_sites, n_bad, alpha, rate)
    for n_sites, n_bad in FEDERATIONS
    for alpha in (0.5, 100.0)
    for rate in ((0.0, 0.1, 0.2, 0.4) if n_bad == 1 else (0.1, 0.4))
]
OUTPUT = Path(__file__).with_name("few-sites.csv")
Row = dict[str, float]


def federation(
    labels: Labels, n_sites: int, n_bad: int, alpha: float, rate: float, draw: int
) -> tuple[Labels, Labels, Labels]:
    """Return rows, given labels and site of every sample; the first sites are the bad ones."""
    random = KeyedRandom(draw, ("few sites", str(n_sites), str(alpha)))
    stream = random.for_numpy()
    pools = [stream.permutation(np.flatnonzero(labels == c)).tolist() for c in range(N_CLASSES)]
    rows, given, sites = [], [], []
    for site in range(n_sites):
        counts = stream.multinomial(N_IMAGES, stream.dirichlet(np.full(N_CLASSES, alpha)))
        # A class that has run out gives what it has.
        mine = np.array([pool.pop() for pool, n in zip(pools, counts, strict=True) for _ in range(min(n, len(pool)))])
        noise = rate if site < n_bad else 0.0
        given.append(symmetric(labels[mine], N_CLASSES, noise, random.derive("noise", str(site))))
        rows.append(mine)
        sites.append(np.full(len(mine), site))
    return np.concatenate(rows), np.concatenate(given), np.concatenate(sites)


def measure(features: Features, labels: Labels, condition: tuple[int, int, float, float], draw: int) -> Row:
    """Return whether each split named exactly the bad sites, and by how much the worst rate is off."""
    n_sites, n_bad, alpha, rate = condition
    rows, given, sites = federation(labels, n_sites, n_bad, alpha, rate, draw)
    bad = set(range(n_bad)) if rate > 0 else set()
    rates = fedsir.identify(features[rows], given, sites, split="rates")
    sent = {str(k): OffDiagonal(*both, N_CLASSES) for k, both in rates.statistics.items()}
    auto = {int(k) for k in split_clients(sent, "auto").noisy}
    true = [float((given != labels[rows])[sites == k].mean()) for k in range(n_sites)]
    errors = [abs(rates.noise_rate[k][0] - true[k]) for k in range(n_sites)]
    return {
        "sites": n_sites,
        "bad": n_bad,
        "alpha": alpha,
        "rate": rate,
        "draw": draw,
        "auto_right": float(auto == bad),
        "rates_right": float(set(rates.noisy) == bad),
        "worst_rate_error": round(max(errors), 4),
    }


def table(rows: Sequence[Row]) -> str:
    """Return how many draws each split got right: a row per federation and α, a column per noise rate."""
    rates = sorted({row["rate"] for row in rows})
    head = [
        "sites",
        "bad",
        "α",
        *(f"{'nobody bad' if rate == 0 else f'{rate:.0%}'}" for rate in rates),
        "worst rate error",
    ]
    lines = [f"| {' | '.join(head)} |", "|" + "---:|" * len(head)]
    for n_sites, n_bad, alpha in dict.fromkeys((row["sites"], row["bad"], row["alpha"]) for row in rows):
        here = [row for row in rows if (row["sites"], row["bad"], row["alpha"]) == (n_sites, n_bad, alpha)]
        cells = []
        for rate in rates:
            drawn = [row for row in here if row["rate"] == rate]
            counts = [sum(row[f"{split}_right"] for row in drawn) for split in ("auto", "rates")]
            cells.append(f"{counts[0]:.0f} → **{counts[1]:.0f}** of {len(drawn)}" if drawn else "–")
        errors = [row["worst_rate_error"] for row in here]
        last = f"{mean(errors):.3f}, at most {max(errors):.3f}"
        lines.append(f"| {n_sites:.0f} | {n_bad:.0f} | {alpha:g} | {' | '.join(cells)} | {last} |")
    return "\n".join([*lines, ""])


def read() -> list[Row]:
    """Return the rows that are stored, in the order of the conditions."""
    rows = [{name: float(value) for name, value in row.items()} for row in stored(OUTPUT)]
    place = {condition: i for i, condition in enumerate(CONDITIONS)}
    return sorted(
        rows, key=lambda row: (place[int(row["sites"]), int(row["bad"]), row["alpha"], row["rate"]], row["draw"])
    )


def frozen_features(data_dir: Path | None) -> tuple[Features, Labels]:
    """Return what the untouched network makes of N_POOL training images, and their labels."""
    where = data_directory(data_dir)
    data = fedsir.FederatedData.load(
        "cifar10",
        n_train=N_POOL,
        partition="iid",
        noise="none",
        noisy_clients="none",
        noise_rate=0.0,
        seed=0,
        data_dir=where,
    )
    return frozen_features_of(data, where), data.given_labels


def frozen_features_of(data: fedsir.FederatedData, data_dir: Path) -> Features:
    """Return what the untouched network makes of a federation's training images."""
    first = initial_model(ModelConfig(name="resnet18", weights="imagenet"), data, seed=0, data_dir=data_dir)
    module = first.module.eval()
    load_weights(module, first.weights)
    images, parts = data.images[data.image_rows], []
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            batch = data.preprocessing.normalise(torch.from_numpy(images[start : start + BATCH]))
            parts.append(module.features(batch))  # type: ignore[operator]
    found: Features = torch.cat(parts).numpy()
    return found


def main() -> None:
    """Measure what is missing, one line of the CSV at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 and the weights lie; default: $FEDSIR_DATA")
    parser.add_argument("--draws", type=int, default=20)
    said = parser.parse_args()
    done = {(r["sites"], r["bad"], r["alpha"], r["rate"], r["draw"]) for r in read()}
    features, labels = frozen_features(said.data_dir)
    for draw in range(said.draws):
        for condition in CONDITIONS:
            if (*condition, draw) in done:
                continue
            add(OUTPUT, [measure(features, labels, condition, draw)])
    OUTPUT.with_suffix(".md").write_text(table(read()), encoding="utf-8")
    print(table(read()), end="")


if __name__ == "__main__":
    main()
