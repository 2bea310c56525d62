"""What identification and relabelling do with each kind of noise, on digits:

    python results/noise_kinds.py

Ten clients, α = 2, the digits recipe, seeds 0 to 2; the noise is that of KINDS. Rows that noise-kinds.csv has already
are not measured again. Writes noise-kinds.csv and .md next to this file.

The kind "file" takes labels that a weak model gave: one image of every class is labelled, and each training image has
the label of the nearest of these ten.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from stored_rows import replace, stored

import fedsir
from fedsir.data.source import load_source
from fedsir.randomness import KeyedRandom
from fedsir.simulation.evaluation import Evaluator

KINDS: dict[str, dict[str, Any]] = {
    "symmetric, 0.4": {"noise_rate": 0.4},
    "pair, 0.4": {"noise": "pair", "noise_rate": 0.4},
    "asymmetric, 0.4": {"noise": "asymmetric", "noise_rate": 0.4},
    "instance, 0.4": {"noise": "instance", "noise_rate": 0.4},
    "symmetric, 0.1 to 0.9": {"noise_rate": (0.1, 0.9)},
    "file, a weak model's": {"noise": "file"},
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {  # title → name, settings
    "FedSIR plus": ("fedsir", {"method.preset": "plus"}),
    "FedSIR": ("fedsir", {}),
    "FedAvg": ("fedavg", {}),
}
SEEDS = (0, 1, 2)
OUTPUT = Path(__file__).with_name("noise-kinds.csv")
SCORES = ("noise_before", "noise_after", "identification", "noise_rate_error", "accuracy")
Row = dict[str, str]


def measure(kind: str, method: str, seed: int) -> Row:
    """Return the scores of one run."""
    name, settings = METHODS[method]
    with tempfile.TemporaryDirectory() as folder:
        noise = KINDS[kind]
        if noise.get("noise") == "file":
            np.save(Path(folder, "labels.npy"), weak_labels(seed))
            noise = noise | {"labels_file": str(Path(folder, "labels.npy"))}
        data = fedsir.FederatedData.load("digits", alpha=2, seed=seed, **noise)
    simulation = fedsir.simulate(data, method=name, seed=seed, settings={"evaluate_every": 100, **settings}).run()
    evaluator = Evaluator(data)
    labels, _ = evaluator.relabelling(evaluator.corrected_labels(simulation.client_states))
    identified = evaluator.identification(simulation.split)
    noise_rates = evaluator.noise_rates(simulation.metrics)
    scores = (
        labels.noise_before,
        labels.noise_after,
        None if identified is None else identified.accuracy,
        None if noise_rates is None else noise_rates.mean,
        simulation.metrics[-1]["accuracy"],
    )
    found = {"kind": kind, "method": method, "seed": str(seed)}
    return found | {name: "" if score is None else f"{score:.4f}" for name, score in zip(SCORES, scores, strict=True)}


def weak_labels(seed: int) -> np.ndarray:
    """Return (n,) labels of the training images, each that of the nearest labelled one."""
    source = load_source("digits", data_dir=Path(), seed=seed)
    pixels = source.train_images.reshape(len(source.train_labels), -1).astype(np.float64)
    random = KeyedRandom(seed, ("weak labels",)).for_numpy()
    labelled = np.array([random.choice(np.flatnonzero(source.train_labels == c)) for c in range(source.n_classes)])
    distances = ((pixels[:, None] - pixels[labelled]) ** 2).sum(axis=2)
    return source.train_labels[labelled[distances.argmin(axis=1)]]


def table(rows: Sequence[Row]) -> str:
    """Return a row per kind and method, in percent; means over the seeds, in brackets the standard deviation."""
    lines = [
        "| noise | method | label noise | clients on the right side | noise rates off by | accuracy (sd) |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for kind in KINDS:
        for method in METHODS:
            found = [row for row in rows if (row["kind"], row["method"]) == (kind, method)]
            before, after, identified, off, _ = (_mean(found, name) for name in SCORES)
            accuracies = [100 * float(row["accuracy"]) for row in found]
            accuracy = f"{mean(accuracies):.1f} ({stdev(accuracies):.1f})"
            lines.append(f"| {kind} | {method} | {before} → {after} | {identified} | {off} | {accuracy} |")
    return "\n".join([*lines, ""])


def _mean(rows: Sequence[Mapping[str, str]], name: str) -> str:
    known = [100 * float(row[name]) for row in rows if row[name]]
    return f"{mean(known):.1f}" if known else "–"


def main() -> None:
    """Measure what is missing, a row at a time; the table comes last."""
    known = {(row["kind"], row["method"], row["seed"]): row for row in stored(OUTPUT)}
    wanted = [(kind, method, str(seed)) for method in METHODS for kind in KINDS for seed in SEEDS]
    for kind, method, seed in wanted:
        if (kind, method, seed) not in known:
            known[kind, method, seed] = measure(kind, method, int(seed))
            replace(OUTPUT, [known[key] for key in wanted if key in known])
            print(*known[kind, method, seed].values(), flush=True)
    rows = [known[key] for key in wanted]
    OUTPUT.with_suffix(".md").write_text(table(rows), encoding="utf-8")
    print(table(rows), end="")


if __name__ == "__main__":
    main()
