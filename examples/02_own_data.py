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
        result = fedsir.run(dataset=data, rounds=4, out=out)
        labels = result.labels()
        most_doubtful = (out / "labels.csv").read_text().splitlines()[:4]

    for site, rate in result["noise_rates"].items():
        verdict = "noisy" if site in result["noisy_clients"] else "clean"
        own = [row for row in labels if row["client"] == site]
        changed = sum(row["given"] != row["corrected"] for row in own) / len(own)
        print(f"{site:7} {verdict}   labels wrong by estimate {rate:.0%}   labels changed {changed:.0%}")
    print("look at these first:", *most_doubtful, sep="\n  ")
    print(f"noisy: {', '.join(result['noisy_clients'])}")


if __name__ == "__main__":
    main()
