"""How often Stage I accuses a clean site that has few images, and how often it names a noisy one.

Features are those of the ImageNet network, untouched. Every fifth site has 30 % wrong labels (symmetric), the others
none. Training images of CIFAR-10, dealt by class (Dirichlet, α) anew for each draw.

    python results/small_sites.py --data-dir DATA --draws 4

Writes small-sites.csv and .md next to this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from few_sites import N_CLASSES, frozen_features
from stored_rows import replace

import fedsir
from fedsir.data.noise import symmetric
from fedsir.randomness import KeyedRandom
from fedsir.stages.spectrum import Features, Labels

FEDERATIONS = ((8, 100), (8, 300), (20, 100), (20, 250), (40, 120))  # sites, and images of each
ALPHAS, RATE = (0.5, 100.0), 0.3
OUTPUT = Path(__file__).with_name("small-sites.csv")
Row = dict[str, float]


def measure(features: Features, labels: Labels, n_sites: int, n_images: int, alpha: float, draw: int) -> Row:
    """Return how many clean sites were accused, and how many noisy ones named."""
    random = KeyedRandom(draw, ("small sites", str(n_sites), str(n_images), str(alpha)))
    stream = random.for_numpy()
    pools = [stream.permutation(np.flatnonzero(labels == c)).tolist() for c in range(N_CLASSES)]
    rows, given, sites = [], [], []
    for site in range(n_sites):
        counts = stream.multinomial(n_images, stream.dirichlet(np.full(N_CLASSES, alpha)))
        mine = np.array([pool.pop() for pool, n in zip(pools, counts, strict=True) for _ in range(min(n, len(pool)))])
        noise = RATE if site % 5 == 0 else 0.0
        given.append(symmetric(labels[mine], N_CLASSES, noise, random.derive("noise", str(site))))
        rows.append(mine)
        sites.append(np.full(len(mine), site))
    found = fedsir.identify(features[np.concatenate(rows)], np.concatenate(given), np.concatenate(sites))
    bad = set(range(0, n_sites, 5))
    return {
        "sites": n_sites,
        "images": n_images,
        "alpha": alpha,
        "draw": draw,
        "clean": n_sites - len(bad),
        "accused": len(set(found.noisy) - bad),
        "noisy": len(bad),
        "named": len(set(found.noisy) & bad),
        "not_assessed": len(found.not_assessed),
    }


def table(rows: Sequence[Row]) -> str:
    """Return counts over the draws: a row per federation and α."""
    lines = [
        "| sites | images each | α | clean sites accused | noisy sites named | not assessed |",
        "|" + "---:|" * 6,
    ]
    for key in dict.fromkeys((row["sites"], row["images"], row["alpha"]) for row in rows):
        here = [row for row in rows if (row["sites"], row["images"], row["alpha"]) == key]
        total = {name: int(sum(row[name] for row in here)) for name in here[0]}
        lines.append(
            f"| {key[0]:.0f} | {key[1]:.0f} | {key[2]:g} | **{total['accused']}** of {total['clean']} | "
            f"**{total['named']}** of {total['noisy']} | {total['not_assessed']} |"
        )
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure every federation, then write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 and the weights lie; default: $FEDSIR_DATA")
    parser.add_argument("--draws", type=int, default=4)
    said = parser.parse_args()
    features, labels = frozen_features(said.data_dir)
    rows = [
        measure(features, labels, n_sites, n_images, alpha, draw)
        for n_sites, n_images in FEDERATIONS
        for alpha in ALPHAS
        for draw in range(said.draws)
    ]
    replace(OUTPUT, rows)
    OUTPUT.with_suffix(".md").write_text(table(rows), encoding="utf-8")
    print(table(rows), end="")


if __name__ == "__main__":
    main()
