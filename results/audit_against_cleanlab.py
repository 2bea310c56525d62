"""Wrong labels found by an audit, next to cleanlab on the same features and labels.

Features are those of the ImageNet network, untouched. 10 clients with 1,000 CIFAR-10 training images each, dealt by
class (Dirichlet, α); 3 clients have 40 % symmetric noise. cleanlab gets out-of-sample probabilities (5-fold cross-
validation) of a classifier on standardised features: logistic regression or a linear discriminant with shrunk
covariance, on everybody's samples together ("pooled") or on each client's own. The audit pools nobody's samples.

    python results/audit_against_cleanlab.py --data-dir DATA --draws 3 --cache features.npz

Writes audit-against-cleanlab.csv and .md next to this file. Needs cleanlab.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import numpy as np
from audit_intervals import cached_features
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from few_sites import federation
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from stored_rows import replace

import fedsir
from fedsir.stages.spectrum import Features, Labels

N_CLIENTS, N_BAD, RATE, ALPHAS, FOLDS = 10, 3, 0.4, (0.5, 100.0), 5
N_POOL = 20_000  # images that clients are dealt from
CLASSIFIERS = {
    "logistic regression": LogisticRegression(C=0.01, max_iter=300),
    "linear discriminant": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
}
OUTPUT = Path(__file__).with_name("audit-against-cleanlab.csv")
Row = dict[str, str | float]
Booleans = NDArray[np.bool_]
Floats = NDArray[np.float64]


def by_cleanlab(features: Features, given: Labels, classifier: str) -> tuple[Booleans, Floats]:
    """Return which labels cleanlab calls issues, (n,), and their quality, (n,)."""
    classes, labels = np.unique(given, return_inverse=True)
    probabilities = np.full((len(labels), len(classes)), 1e-6)
    model = make_pipeline(StandardScaler(), CLASSIFIERS[classifier])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with fewer samples than folds
        warnings.simplefilter("ignore", ConvergenceWarning)
        for fit, predict in StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(features, labels):
            fitted = clone(model).fit(features[fit], labels[fit])
            probabilities[predict[:, None], fitted.classes_] += fitted.predict_proba(features[predict])
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    is_issue = find_label_issues(labels, probabilities, n_jobs=1)
    return is_issue, get_label_quality_scores(labels, probabilities)


def per_client(features: Features, given: Labels, clients: Labels, classifier: str) -> tuple[Booleans, Floats]:
    """Return the same where each client uses its own samples alone."""
    is_issue, quality = np.zeros(len(given), bool), np.zeros(len(given))
    for client in np.unique(clients):
        mine = clients == client
        is_issue[mine], quality[mine] = by_cleanlab(features[mine], given[mine], classifier)
    return is_issue, quality


def measure(features: Features, labels: Labels, alpha: float, draw: int) -> list[Row]:
    """Return precision, recall and average precision of every way, over all clients and over the noisy ones."""
    rows, given, clients = federation(labels, N_CLIENTS, N_BAD, alpha, RATE, draw)
    x, is_wrong = features[rows], given != labels[rows]
    audited = fedsir.audit(x, given, clients)
    noisy = sorted(audited.clients["client"][audited.clients["verdict"] == "noisy"].tolist())
    found = {"fedsir audit": (audited.samples["is_label_issue"], audited.samples["score"])}
    for classifier in CLASSIFIERS:
        found[f"cleanlab pooled, {classifier}"] = by_cleanlab(x, given, classifier)
    found["cleanlab per client, linear discriminant"] = per_client(x, given, clients, "linear discriminant")
    measured: list[Row] = []
    for way, (is_issue, score) in found.items():
        row: Row = {"way": way, "alpha": alpha, "draw": draw, "exactly_named": float(noisy == list(range(N_BAD)))}
        for where, mask in (("all", np.ones(len(clients), bool)), ("noisy", clients < N_BAD)):
            hits = int((is_issue & is_wrong & mask).sum())
            row[f"precision_{where}"] = round(hits / max(int((is_issue & mask).sum()), 1), 4)
            row[f"recall_{where}"] = round(hits / int((is_wrong & mask).sum()), 4)
            row[f"average_precision_{where}"] = round(float(average_precision_score(is_wrong[mask], -score[mask])), 4)
        measured.append(row)
    return measured


def table(rows: Sequence[Row]) -> str:
    """Return a row for each way and α: means over the draws."""
    head = ["α", "way", "precision", "recall", "average precision", "the same on the 3 noisy clients"]
    lines = [f"| {' | '.join(head)} |", "|---:|---|---:|---:|---:|---:|"]
    for alpha in ALPHAS:
        for way in dict.fromkeys(row["way"] for row in rows):
            here = [row for row in rows if (row["alpha"], row["way"]) == (alpha, way)]
            if not here:
                continue
            names = ("precision", "recall", "average_precision")
            all_, noisy = (
                [mean(float(row[f"{n}_{where}"]) for row in here) for n in names] for where in ("all", "noisy")
            )
            cells = [f"{value:.3f}" for value in all_]
            cells[2] = f"**{cells[2]}**"
            lines.append(
                f"| {alpha:g} | {way} | {' | '.join(cells)} | {', '.join(f'{value:.3f}' for value in noisy)} |"
            )
    ours = [row for row in rows if row["way"] == "fedsir audit"]
    named = sum(float(row["exactly_named"]) for row in ours)
    lines += ["", f"Exactly the 3 noisy clients were named in {named:.0f} of {len(ours)} federations."]
    return "\n".join([*lines, ""])


def main() -> None:
    """Measure every draw and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 and the weights lie; default: $FEDSIR_DATA")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="npz file that keeps the features")
    said = parser.parse_args()
    features, labels = cached_features(said.data_dir, said.cache)
    features, labels = features[:N_POOL], labels[:N_POOL]
    rows: list[Row] = []
    for draw in range(said.draws):
        for alpha in ALPHAS:
            rows += measure(features, labels, alpha, draw)
            print(table(rows), flush=True)
    replace(OUTPUT, rows)
    OUTPUT.with_suffix(".md").write_text(table(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
