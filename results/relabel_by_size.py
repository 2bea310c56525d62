"""How often each score of Stage II names the right class, by the images per class behind the references.

The model is fixed, that of a finished CIFAR-10 run; only the number of images behind the references varies:

    fedsir run cifar10-cpu --method fedavg --noise-rate 0 --rounds 5 --data-dir DATA --out RUN
    python results/relabel_by_size.py RUN --data-dir DATA

References come from one clean client with N training images of each class that the run did not train on, drawn anew
DRAWS times. They judge the 10,000 test images. Writes relabel-by-size.csv and .md next to this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from stored_rows import replace, stored

import fedsir
from fedsir.data.directory import data_directory
from fedsir.data.source import load_source
from fedsir.stages.relabel import aggregate_references, extract_spectra, relabel
from fedsir.stages.spectrum import Features, Labels, class_features

SIZES = (15, 30, 100, 200, 340, 800, 1600)
DRAWS = 5
RANK = 12  # method.relabel.residual_rank
BATCH = 500
OUTPUT = Path(__file__).with_name("relabel-by-size.csv")
Row = dict[str, float]


def measure(train: Features, labels: Labels, test: Features, true: Labels, size: int, draw: int) -> Row:
    """Return the shares of test samples that each score gets right, with `size` training samples of each class."""
    n_classes = int(labels.max()) + 1
    random = np.random.default_rng([size, draw])
    rows = np.concatenate([random.permutation(np.flatnonzero(labels == c))[:size] for c in range(n_classes)])
    spectra = extract_spectra(class_features(train[rows], labels[rows], n_classes), RANK, "after_block")
    references = aggregate_references({"0": spectra}, weight="count_gap_share", min_samples=1, min_strength=0.03)
    by = {rule: relabel(test, true, references, rule) for rule in ("direction", "residual")}
    is_right = {rule: found.labels == true for rule, found in by.items()}
    agrees = ~by["direction"].is_undecided
    shares = {
        "direction_right": is_right["direction"],
        "residual_right": is_right["residual"],
        "agree": agrees,
        "right_where_they_agree": is_right["direction"][agrees],
    }
    counted: Row = {"images_per_class": size, "draw": draw}
    return counted | {name: round(float(share.mean()), 4) for name, share in shares.items()}


def table(rows: Sequence[Row]) -> str:
    """Return the means over draws as a table, in percent."""
    lines = [
        "| images per class | direction right | residual right | both name one class | right where they do |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size in dict.fromkeys(row["images_per_class"] for row in rows):
        drawn = [row for row in rows if row["images_per_class"] == size]
        shares = (mean(row[name] for row in drawn) for name in list(drawn[0])[2:])
        lines.append(f"| {size:,.0f} | " + " | ".join(f"{100 * share:.0f}" for share in shares) + " |")
    return "\n".join([*lines, ""])


def read() -> list[Row]:
    """Return the rows that are stored."""
    return [{name: float(value) for name, value in row.items()} for row in stored(OUTPUT)]


def main() -> None:
    """Compute all features once, then measure every size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run on CIFAR-10")
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 lies; default: $FEDSIR_DATA")
    said = parser.parse_args()
    run = fedsir.load_run(said.run)
    source = load_source("cifar10", data_dir=data_directory(said.data_dir), seed=0)
    module = run.model()

    @torch.no_grad()
    def features(rows: Labels) -> Features:
        parts = (torch.from_numpy(source.images[rows[i : i + BATCH]]) for i in range(0, len(rows), BATCH))
        computed = [module.features(source.preprocessing.normalise(part)) for part in parts]  # type: ignore[operator]
        found: Features = torch.cat(computed).numpy()
        return found

    unseen = np.setdiff1d(np.arange(len(source.train_labels)), [int(row["sample"]) for row in run.labels()])
    labels = source.train_labels[unseen]
    # Only so many of each class as the largest size needs, once over.
    needed = np.concatenate([np.flatnonzero(labels == c)[: 2 * SIZES[-1]] for c in range(source.n_classes)])
    train, test = features(source.train_rows[unseen[needed]]), features(source.test_rows)
    rows = [
        measure(train, labels[needed], test, source.test_labels, size, draw) for size in SIZES for draw in range(DRAWS)
    ]
    replace(OUTPUT, rows)
    OUTPUT.with_suffix(".md").write_text(table(read()), encoding="utf-8")
    print(f"model of {said.run}: accuracy {run['accuracy']:.1%}")
    print(table(rows), end="")


if __name__ == "__main__":
    main()
