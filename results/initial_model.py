"""Whom Stage I of the preset `plus` calls noisy under the initial model, before anybody trains:

    python results/initial_model.py --data-dir DATA

The federations of the recipe cifar10-cpu (10,000 CIFAR-10 images, ten clients) and more and less even ones, with every
kind of noise, six seeds; features of the ImageNet ResNet-18. Writes initial-model.csv and .md next to this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from few_sites import frozen_features_of
from stored_rows import add, stored

import fedsir
from fedsir.data.directory import data_directory
from fedsir.data.federation import FederatedData
from fedsir.stages.noise_rates import LIMIT

KINDS: dict[str, dict[str, Any]] = {
    "nobody noisy": {"noise_rate": 0.0},
    "symmetric, 0.3": {"noise_rate": 0.3},
    "symmetric, 0.6": {"noise_rate": 0.6},
    "symmetric, 0.9": {"noise_rate": 0.9},
    "symmetric, 0.1 to 0.9": {"noise_rate": (0.1, 0.9)},
    "pair, 0.4": {"noise": "pair", "noise_rate": 0.4},
    "asymmetric, 0.4": {"noise": "asymmetric", "noise_rate": 0.4},
}
ALPHAS = (0.1, 0.5, 2)
SEEDS = (42, 100, 101, 102, 103, 104)
OUTPUT = Path(__file__).with_name("initial-model.csv")
Row = dict[str, str]


def federation(alpha: float, kind: str, seed: int, data_dir: Path) -> FederatedData:
    """Return the recipe's federation with this noise."""
    return fedsir.FederatedData.load(
        "cifar10",
        **KINDS[kind],
        n_train=10_000,
        alpha=alpha,
        partition="authors",
        public_size=1000,
        seed=seed,
        data_dir=data_dir,
    )


def row_of(alpha: float, kind: str, seed: int, data: FederatedData, found: fedsir.Identification) -> Row:
    """Return how many clients are called what they are; a client with up to LIMIT wrong labels may be called either."""
    true = data.noise_by_client()
    assert true is not None, "the noise is ours"
    clean, noisy = ([k for k in true if is_so(true[k])] for is_so in (lambda e: e == 0, lambda e: e > LIMIT))
    errors = [abs(found.noise_rate[k][0] - true[k]) for k in true if k in found.noise_rate]
    missed = [true[k] for k in noisy if k not in found.noisy]
    counts = {
        "alpha": alpha,
        "kind": kind,
        "seed": seed,
        "clean": len(clean),
        "accused": sum(k in found.noisy for k in clean),
        "noisy": len(noisy),
        "named": len(noisy) - len(missed),
        "most_missed": round(max(missed, default=0.0), 4),
        "rate_error": round(mean(errors), 4),
    }
    return {name: str(value) for name, value in counts.items()}


def table(rows: Sequence[Row]) -> str:
    """Return a row per kind of noise and evenness of the split, over the seeds."""
    lines = [
        "| noise | α | clean clients accused | noisy clients named | wrong labels of the worst missed | rates off by |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for kind, alpha in product(KINDS, ALPHAS):
        here = [row for row in rows if (row["kind"], float(row["alpha"])) == (kind, alpha)]
        clean, accused, noisy, named = (
            sum(int(row[n]) for row in here) for n in ("clean", "accused", "noisy", "named")
        )
        missed, off = max(float(row["most_missed"]) for row in here), mean(float(row["rate_error"]) for row in here)
        cells = (f"{accused} of {clean}", f"{named} of {noisy}" if noisy else "–", f"{missed:.0%}" if missed else "–")
        lines.append(f"| {kind} | {alpha:g} | {' | '.join(cells)} | {off:.3f} |")
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure what is missing, one line of the CSV at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 and the weights lie; default: $FEDSIR_DATA")
    where = data_directory(parser.parse_args().data_dir)
    done = {(float(row["alpha"]), row["kind"], row["seed"]) for row in stored(OUTPUT)}
    for alpha, seed in product(ALPHAS, SEEDS):
        rows, features = np.zeros(0), np.zeros((0, 0))
        for kind in KINDS:
            if (alpha, kind, str(seed)) in done:
                continue
            data = federation(alpha, kind, seed, where)
            if not np.array_equal(data.image_rows, rows):  # noise changes labels, not who has which image
                rows, features = data.image_rows, frozen_features_of(data, where)
            owners = np.repeat(data.clients, np.diff(data.offsets))
            add(OUTPUT, [row_of(alpha, kind, seed, data, fedsir.identify(features, data.given_labels, owners))])
    OUTPUT.with_suffix(".md").write_text(table(stored(OUTPUT)), encoding="utf-8")
    print(table(stored(OUTPUT)), end="")


if __name__ == "__main__":
    main()
