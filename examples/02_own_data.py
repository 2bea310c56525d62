"""Which of my four sites has bad labels? Writes an npz as you would, runs FedSIR on it, prints the verdict.

The data are 1,000 of scikit-learn's digits, dealt to four sites; the labels of "cadiz" are shuffled.
"""

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

import fedsir


def write_npz(path: Path) -> None:
    """Write images, labels and the owner of each image; the labels of one site are worthless."""
    pixels, labels = (array[:1000] for array in load_digits(return_X_y=True))  # pixels (1000, 64) in 0 … 16
    rng = np.random.default_rng(0)
    sites = np.array(["aachen", "bergen", "cadiz", "dublin"])[rng.integers(4, size=len(labels))]
    is_cadiz = sites == "cadiz"
    labels[is_cadiz] = rng.permutation(labels[is_cadiz])
    images = (pixels * 255 / 16).round().astype(np.uint8).reshape(-1, 8, 8)
    np.savez(path, images=images, labels=labels, clients=sites)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, out = Path(folder) / "sites.npz", Path(folder) / "run"
        write_npz(data)
        # split = "auto", the default for own data, asks for more evidence than one site of four can give.
        result = fedsir.run(dataset=data, rounds=3, settings={"method.identify.split": "always"}, out=out)
        split, labels = result.split, result.labels()

    assert split is not None and split.evidence is not None, "four different sites can be compared"
    for site, (similarity, _) in split.statistics.items():
        verdict = "noisy" if site in split.noisy else "clean"
        own = [row for row in labels if row["client"] == site]
        changed = sum(row["given"] != row["corrected"] for row in own) / len(own)
        print(f"{site:7} {verdict}   similarity of classes {similarity:.2f}   labels changed {changed:.0%}")
    evidence = split.evidence
    print(f"evidence for two groups: {evidence.separation:.0f} spreads apart, p-value {evidence.p_value:.3f}")
    print(f"noisy: {', '.join(result['noisy_clients'])}")


if __name__ == "__main__":
    main()
