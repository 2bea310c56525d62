"""FedSIR's three stages by hand, on scikit-learn's digits: no network, no training, a few seconds.

Six clients share the digits. On three of them, each label is wrong with probability 0.6. The pixels serve as features.
"""

import numpy as np
import torch
from sklearn.datasets import load_digits

from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.relabel import aggregate_references, extract_spectra, relabel
from fedsir.stages.spectrum import class_features
from fedsir.stages.split import split_clients
from fedsir.stages.train import daagg_weights

N_CLASSES = 10
NOISE_RATE = 0.6
REALLY_NOISY = ("paul", "quinn", "rosa")

# The federation: features and true labels by client, then given labels, wrong for three of them.
pixels, digits = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
names = ("mary", "nils", "otto", "paul", "quinn", "rosa")
rows = dict(zip(names, np.array_split(rng.permutation(len(digits)), len(names)), strict=True))
features = {k: pixels[r] for k, r in rows.items()}
true = {k: digits[r] for k, r in rows.items()}
given = {k: labels.copy() for k, labels in true.items()}
for k in REALLY_NOISY:
    is_flipped = rng.random(len(given[k])) < NOISE_RATE
    shift = rng.integers(1, N_CLASSES, len(given[k]))
    given[k] = np.where(is_flipped, (true[k] + shift) % N_CLASSES, true[k])

# Stage I, on each client: how alike are my classes? Only two numbers leave the client.
collected = {k: class_features(features[k], given[k], N_CLASSES) for k in names}
statistics = {k: off_diagonal_stats(class_similarity(class_directions(collected[k]))) for k in names}
for k, numbers in statistics.items():
    print(f"Stage I    {k:6} mean similarity of classes {numbers.mean:.3f}, energy {numbers.energy:.3f}")

# Stage I, on the server: two groups?
split = split_clients(statistics, "auto")
assert split.evidence is not None, "six different clients can be compared"
print(f"Stage I    p-value {split.evidence.p_value:.4f}, groups {split.evidence.separation:.0f} spreads apart")
print(f"Stage I    noisy clients: {', '.join(split.noisy)}")

# Stage II: clean clients send one direction and a residual subspace per class; the server averages them.
spectra = {k: extract_spectra(collected[k], rank=12, variant="after_block") for k in split.clean}
references = aggregate_references(spectra, weight="count_gap_share", min_samples=5, min_strength=0.03)

# Stage II, on each noisy client: a label changes only where both scores name the same class.
for k in split.noisy:
    corrected = relabel(features[k], given[k], references).labels
    before, after = ((labels != true[k]).mean() for labels in (given[k], corrected))
    print(f"Stage II   {k:6} wrong labels {before:.0%} before, {after:.0%} after")

# Stage III, one piece of it: a noisy client's model counts less, the farther it is from the clean ones.
class_means = {k: torch.tensor([features[k][given[k] == c].mean(0) for c in range(N_CLASSES)]) for k in names}
shares = daagg_weights({k: {"means": m} for k, m in class_means.items()}, {k: len(rows[k]) for k in names}, split.clean)
for k, share in shares.items():
    print(f"Stage III  {k:6} weight {share:.1%} (by sample count {len(rows[k]) / len(digits):.1%})")
