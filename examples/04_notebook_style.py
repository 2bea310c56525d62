"""Which sites have bad labels, and what should the labels be? On features you have already; no training, no torch."""

import numpy as np
from sklearn.datasets import load_digits

import fedsir

# Any embedding will do; here the pixels of digits. Six sites; on two of them, six of ten labels are wrong.
features, true = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
sites = rng.choice(["Aachen", "Bergen", "Cadiz", "Dublin", "Evora", "Fermo"], len(true))
is_wrong = np.isin(sites, ["Cadiz", "Fermo"]) & (rng.random(len(true)) < 0.6)
labels = np.where(is_wrong, (true + rng.integers(1, 10, len(true))) % 10, true)

found = fedsir.identify(features, labels, sites)
fixed = fedsir.relabel(features, labels, sites, found)
print(found.to_frame()[["client", "verdict", "samples", "noise_rate"]].to_string(index=False))
print(fixed.to_frame().sort_values("score").head(5).to_string(index=False))
for name, current in (("given", labels), ("corrected", fixed.labels)):
    print(f"{name} labels that are wrong: {(current != true)[np.isin(sites, found.noisy)].mean():.0%} on noisy sites")
