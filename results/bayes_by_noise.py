"""Label noise that each rule of Stage II leaves, by the kind and rate of the noise.

The model is fixed, that of a finished CIFAR-10 run; only what is done with its features differs:

    fedsir run cifar10-cpu --method fedavg --noise-rate 0 --rounds 5 --data-dir DATA --out RUN
    python results/bayes_by_noise.py RUN --data-dir DATA

Three clean and seven noisy clients hold 1,000 training images each that the run did not train on, dealt by class
(Dirichlet, α = 0.5) anew DRAWS times. Writes bayes-by-noise.csv and .md next to this file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean

import numpy as np
import torch
from stored_rows import replace, stored

import fedsir
from fedsir.data import noise
from fedsir.data.directory import data_directory
from fedsir.data.source import Source, load_source
from fedsir.randomness import KeyedRandom
from fedsir.stages.bayes import weigh_labels
from fedsir.stages.discriminant import class_moments, discriminant, discriminant_scores
from fedsir.stages.relabel import aggregate_references, extract_spectra, relabel
from fedsir.stages.spectrum import Array, Features, Labels, class_features

N_CLEAN, N_NOISY, N_IMAGES, ALPHA, DRAWS = 3, 7, 1000, 0.5, 5
KINDS = (*(("symmetric", rate) for rate in (0.0, 0.1, 0.3, 0.6, 0.9)), ("asymmetric", 0.4), ("pair", 0.4))
BATCH = 500
OUTPUT = Path(__file__).with_name("bayes-by-noise.csv")
Row = dict[str, str | float]


def dealt(labels: Labels, random: KeyedRandom) -> list[Labels]:
    """Return the rows of each client: its class shares are drawn, its images are nobody else's."""
    stream = random.for_numpy()
    pools = [stream.permutation(np.flatnonzero(labels == c)).tolist() for c in range(int(labels.max()) + 1)]
    clients = []
    for _ in range(N_CLEAN + N_NOISY):
        counts = stream.multinomial(N_IMAGES, stream.dirichlet(np.full(len(pools), ALPHA)))
        # A class that has run out gives what it has.
        clients.append(
            np.array([pool.pop() for pool, n in zip(pools, counts, strict=True) for _ in range(min(n, len(pool)))])
        )
    return clients


def noisy_labels(source: Source, kind: str, rate: float, true: Labels, random: KeyedRandom) -> Labels:
    """Return given labels with that noise."""
    if kind == "symmetric":
        return noise.symmetric(true, source.n_classes, rate, random)
    targets = source.confused_with if kind == "asymmetric" else noise.pair_targets(source.n_classes)
    assert targets is not None, "CIFAR-10 says which classes are taken for which"
    return noise.flip_to(true, targets, rate, random)


def measure(source: Source, features: Features, logits: Features, labels: Labels, draw: int) -> list[Row]:
    """Return label noise left and the error of the estimated rate, for every kind of noise and rule."""
    clients = dealt(labels, KeyedRandom(draw, ("bayes by noise",)))
    clean, noisy = clients[:N_CLEAN], clients[N_CLEAN:]
    n_classes = source.n_classes
    spectra = {
        str(k): extract_spectra(class_features(features[rows], labels[rows], n_classes), 12, "after_block")
        for k, rows in enumerate(clean)
    }
    references = aggregate_references(spectra, weight="count_gap_share", min_samples=20, min_strength=0.03)
    scores = discriminant_scores(
        features, discriminant(class_moments(features[rows], labels[rows], n_classes) for rows in clean)
    )
    exact: Array = logits.astype(np.float64)
    # Each turns (rows, given labels) into corrected labels, and the noise rate where it has an opinion.
    rules: dict[str, Callable[[Labels, Labels], tuple[Labels, float | None]]] = {
        "direction": lambda rows, given: (relabel(features[rows], given, references, "direction").labels, None),
        "agreement": lambda rows, given: (relabel(features[rows], given, references, "agreement").labels, None),
        "model's own class": lambda rows, _given: (exact[rows].argmax(axis=1), None),
        "discriminant's class": lambda rows, _given: (scores[rows].argmax(axis=1), None),
        "bayes on the model's logits": lambda rows, given: _weighed(exact[rows], given),
        "bayes, symmetric noise only": lambda rows, given: _weighed(scores[rows], given, np.inf),
        "bayes": lambda rows, given: _weighed(scores[rows], given),
    }
    found: list[Row] = []
    for kind, rate in KINDS:
        drawn = [
            noisy_labels(source, kind, rate, labels[rows], KeyedRandom(draw, ("noise", kind, str(rate), str(k))))
            for k, rows in enumerate(noisy)
        ]
        before = [float((given != labels[rows]).mean()) for rows, given in zip(noisy, drawn, strict=True)]
        for name, rule in rules.items():
            answers = [rule(rows, given) for rows, given in zip(noisy, drawn, strict=True)]
            left = [float((fixed != labels[rows]).mean()) for (fixed, _), rows in zip(answers, noisy, strict=True)]
            errors = [abs(e - b) for (_, e), b in zip(answers, before, strict=True) if e is not None]
            found.append(
                {
                    "noise": kind,
                    "rate": rate,
                    "draw": draw,
                    "rule": name,
                    "before": round(mean(before), 4),
                    "left": round(mean(left), 4),
                    "rate_error": round(mean(errors), 4) if errors else "",
                    "worst_rate_error": round(max(errors), 4) if errors else "",
                }
            )
    return found


def _weighed(scores: Array, given: Labels, strength: float | None = None) -> tuple[Labels, float | None]:
    found = weigh_labels(scores, given) if strength is None else weigh_labels(scores, given, strength)
    return found.labels, found.noise_rate


def table(rows: Sequence[Row]) -> str:
    """Return the means over draws, in percent: a row per kind of noise, a column per rule."""
    rules = list(dict.fromkeys(str(row["rule"]) for row in rows))
    head = ["noise", "before", *rules, "error of its rate (worst)"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for kind, rate in dict.fromkeys((str(row["noise"]), float(row["rate"])) for row in rows):
        here = [row for row in rows if row["noise"] == kind and float(row["rate"]) == rate]
        by_rule = {rule: [row for row in here if row["rule"] == rule] for rule in rules}
        left = [f"{100 * mean(float(row['left']) for row in by_rule[rule]):.1f}" for rule in rules]
        errors = [float(row["rate_error"]) for row in by_rule["bayes"]]
        worst = max(float(row["worst_rate_error"]) for row in by_rule["bayes"])
        before = 100 * mean(float(row["before"]) for row in here)
        last = f"{mean(errors):.3f} ({worst:.3f})"
        lines.append(f"| {kind} {rate:g} | {before:.1f} | {' | '.join(left)} | {last} |")
    return "\n".join([*lines, ""])


def read() -> list[Row]:
    """Return the rows that are stored."""
    return [dict(row) for row in stored(OUTPUT)]


def main() -> None:
    """Compute all features once, then measure every draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run on CIFAR-10")
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 lies; default: $FEDSIR_DATA")
    said = parser.parse_args()
    run = fedsir.load_run(said.run)
    source = load_source("cifar10", data_dir=data_directory(said.data_dir), seed=0)
    module = run.model()
    unseen = np.setdiff1d(np.arange(len(source.train_labels)), [int(row["sample"]) for row in run.labels()])
    images, labels = source.images[source.train_rows[unseen]], source.train_labels[unseen]
    features, logits = [], []
    with torch.no_grad():
        for start in range(0, len(images), BATCH):
            part = source.preprocessing.normalise(torch.from_numpy(images[start : start + BATCH]))
            features.append(module.features(part))  # type: ignore[operator]
            logits.append(module.head(features[-1]))  # type: ignore[operator]
    rows = [
        row
        for draw in range(DRAWS)
        for row in measure(source, torch.cat(features).numpy(), torch.cat(logits).numpy(), labels, draw)
    ]
    replace(OUTPUT, rows)
    OUTPUT.with_suffix(".md").write_text(table(read()), encoding="utf-8")
    print(f"model of {said.run}: accuracy {run['accuracy']:.1%}")
    print(table(read()), end="")


if __name__ == "__main__":
    main()
