"""How often the interval of a noise rate covers the truth, and whether the verdict's probability means what it says.

Features are those of the ImageNet network, untouched. Federations of 8 sites, four of them without a wrong label, the
others with symmetric noise of rates drawn from RATES; 100 to 5,000 CIFAR-10 training images a site, dealt by class
(Dirichlet, α). The truth is the share of labels that were really changed at a site.

    python results/audit_intervals.py --data-dir DATA --draws 10 --cache features.npz

Writes audit-intervals.csv, .md and audit-calibration.svg next to this file; a federation that is there already is not
measured again. `--cache` keeps the features, which take minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import few_sites
import numpy as np
from few_sites import N_CLASSES, frozen_features
from stored_rows import add, stored

import fedsir
from fedsir.data.noise import symmetric
from fedsir.paper.svg import COLOURS, FAINT, style, to_svg
from fedsir.randomness import KeyedRandom
from fedsir.stages.noise_rates import LIMIT
from fedsir.stages.spectrum import Features, Labels

N_SITES, N_POOL = 8, 50_000
SAMPLES = (100, 300, 1000, 5000)
ALPHAS = (0.5, 100.0)
RATES = (0.01, 0.02, 0.03, 0.04, 0.06, 0.07, 0.08, 0.1, 0.2, 0.4, 0.6)
BINS = (0.0, 0.05, 0.2, 0.5, 0.8, 0.95, 1.0001)  # of the verdict's probability
OUTPUT = Path(__file__).with_name("audit-intervals.csv")
CHART = Path(__file__).with_name("audit-calibration.svg")
Row = dict[str, float]


def federation(labels: Labels, n_images: int, alpha: float, draw: int) -> tuple[Labels, Labels, Labels]:
    """Return rows, given labels and site of every sample."""
    random = KeyedRandom(draw, ("audit intervals", str(n_images), str(alpha)))
    stream = random.for_numpy()
    rates = [0.0] * (N_SITES // 2) + stream.choice(RATES, N_SITES - N_SITES // 2, replace=False).tolist()
    pools = [stream.permutation(np.flatnonzero(labels == c)).tolist() for c in range(N_CLASSES)]
    rows, given, sites = [], [], []
    for site, rate in enumerate(rates):
        counts = stream.multinomial(n_images, stream.dirichlet(np.full(N_CLASSES, alpha)))
        # A class that has run out gives what it has.
        mine = np.array([pool.pop() for pool, n in zip(pools, counts, strict=True) for _ in range(min(n, len(pool)))])
        given.append(symmetric(labels[mine], N_CLASSES, rate, random.derive("noise", str(site))))
        rows.append(mine)
        sites.append(np.full(len(mine), site))
    return np.concatenate(rows), np.concatenate(given), np.concatenate(sites)


def measure(features: Features, labels: Labels, n_images: int, alpha: float, draw: int) -> list[Row]:
    """Return what an audit says of every site, and the truth."""
    rows, given, sites = federation(labels, n_images, alpha, draw)
    found = fedsir.audit(features[rows], given, sites).clients
    measured = []
    for row in found.rows():
        true = float((given != labels[rows])[sites == row["client"]].mean())
        about = {"samples": n_images, "alpha": alpha, "draw": draw, "site": row["client"], "true_rate": round(true, 4)}
        names = ("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy")
        measured.append(about | {name: round(row[name], 4) for name in names} | {"is_named": row["verdict"] == "noisy"})
    return measured


def is_covered(row: Row) -> bool:
    """Whether the truth lies in the interval, up to the four digits of the file."""
    return row["noise_rate_low"] - 1e-4 <= row["true_rate"] <= row["noise_rate_high"] + 1e-4


def table(rows: Sequence[Row]) -> str:
    """Return coverage, width and error by samples a site, and how often the probability was right."""
    lines = [
        "| samples a site | intervals | cover the truth | at no noise | up to 10 % | above | mean width | error (RMS) |"
    ]
    lines.append("|" + "---:|" * 8)
    for samples in SAMPLES:
        here = [row for row in rows if row["samples"] == samples and not np.isnan(row["noise_rate"])]
        parts = [here]
        parts.append([row for row in here if row["true_rate"] == 0])
        parts.append([row for row in here if 0 < row["true_rate"] <= 0.1])
        parts.append([row for row in here if row["true_rate"] > 0.1])
        cells = [f"{sum(map(is_covered, part))} of {len(part)}" for part in parts]
        share = np.mean([is_covered(row) for row in here])
        width = np.mean([row["noise_rate_high"] - row["noise_rate_low"] for row in here])
        error = np.sqrt(np.mean([(row["noise_rate"] - row["true_rate"]) ** 2 for row in here]))
        lines.append(
            f"| {samples:,} | {len(here)} | **{share:.0%}** | {' | '.join(cells[1:])} | {width:.3f} | {error:.3f} |"
        )
    lines += ["", "| probability said | sites | mean said | really above 5 % |", "|---|---:|---:|---:|"]
    for low, high, part in binned(rows):
        if part:
            said, true = np.mean([row["probability_noisy"] for row in part]), [is_noisy(row) for row in part]
            lines.append(
                f"| {low:.2f} to {min(high, 1):.2f} | {len(part)} | {said:.2f} | {sum(true)} ({np.mean(true):.2f}) |"
            )
    return "\n".join([*lines, ""])


def is_noisy(row: Row) -> bool:
    """Whether more than 5 % of the site's labels are wrong."""
    return row["true_rate"] > LIMIT


def binned(rows: Sequence[Row]) -> list[tuple[float, float, list[Row]]]:
    """Return the rows by probability: from, to, rows."""
    known = [row for row in rows if not np.isnan(row["probability_noisy"])]
    return [
        (low, high, [row for row in known if low <= row["probability_noisy"] < high]) for low, high in pairwise(BINS)
    ]


def chart(rows: Sequence[Row]) -> bytes:
    """Return the calibration plot: said against seen, with 95 % intervals of what was seen."""
    from matplotlib.figure import Figure

    points = []
    for _, _, part in binned(rows):
        if part:
            n, hits = len(part), sum(map(is_noisy, part))
            # Wilson's interval: it stays inside [0, 1] where all or none were noisy.
            middle, half = (hits + 1.92) / (n + 3.84), 1.96 * np.sqrt(hits * (n - hits) / n + 0.96) / (n + 3.84)
            points.append(
                (np.mean([row["probability_noisy"] for row in part]), hits / n, middle - half, middle + half, n)
            )
    said, seen, low, high, sizes = map(np.array, zip(*points, strict=True))
    with style():
        figure = Figure(figsize=(4.6, 4.2), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        axes.vlines(said, low, high, color=COLOURS[0], linewidth=1.5)
        axes.plot(said, seen, "o", color=COLOURS[0])
        for x, y, n in zip(said, seen, sizes, strict=True):
            axes.annotate(f"{n}", (x, y), textcoords="offset points", xytext=(7, -4 if y > 0.5 else 4), fontsize=8)
        axes.set(xlim=(-0.03, 1.06), ylim=(-0.03, 1.03), xlabel="probability that a site is noisy, as said")
        axes.set_ylabel("share of sites with more than 5 % wrong labels")
        axes.set_title("Is the verdict's probability right?")
        described = "; ".join(f"said {x:.2f}, seen {y:.2f} of {n}" for x, y, n in zip(said, seen, sizes, strict=True))
        return to_svg(figure, "Calibration of the verdict's probability", f"{described}. Numbers at points: sites.")


def read() -> list[Row]:
    """Return the rows that are stored."""
    words = {"True": 1.0, "False": 0.0}
    rows = [{k: words[v] if v in words else float(v) for k, v in row.items()} for row in stored(OUTPUT)]
    return sorted(rows, key=lambda row: (row["samples"], row["alpha"], row["draw"], row["site"]))


def cached_features(data_dir: Path | None, cache: Path | None) -> tuple[Features, Labels]:
    """Return features and labels of all training images, from the cache if they are there."""
    if cache is not None and cache.exists():
        with np.load(cache) as stored:
            return stored["features"], stored["labels"]
    few_sites.N_POOL = N_POOL
    features, labels = frozen_features(data_dir)
    if cache is not None:
        np.savez(cache, features=features, labels=labels)
    return features, labels


def main() -> None:
    """Measure what is missing, one federation at a time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 and the weights lie; default: $FEDSIR_DATA")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--cache", type=Path, help="npz file that keeps the features")
    said = parser.parse_args()
    done = {(row["samples"], row["alpha"], row["draw"]) for row in read()}
    features, labels = cached_features(said.data_dir, said.cache)
    for draw in range(said.draws):
        for samples in SAMPLES:
            for alpha in ALPHAS:
                if (samples, alpha, draw) in done:
                    continue
                add(OUTPUT, measure(features, labels, samples, alpha, draw))
    OUTPUT.with_suffix(".md").write_text(table(read()), encoding="utf-8")
    CHART.write_bytes(chart(read()))
    print(table(read()), end="")


if __name__ == "__main__":
    main()
