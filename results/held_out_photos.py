"""Makes a data set to choose settings on: 10,000 of CIFAR-10's training images, and 20,000 others of them for testing.

    python results/held_out_photos.py held-out.npz --data-dir DATA

No test image of CIFAR-10 is in it, so nothing that is chosen on it has seen one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from fedsir.data.directory import data_directory
from fedsir.data.source import load_source

N_TRAIN, N_TEST, SEED = 10_000, 20_000, 7


def main() -> None:
    """Write the npz."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the npz file to write")
    parser.add_argument("--data-dir", type=Path, help="where CIFAR-10 lies; default: $FEDSIR_DATA")
    asked = parser.parse_args()
    source = load_source("cifar10", data_dir=data_directory(asked.data_dir), seed=SEED)
    chosen = np.random.default_rng(SEED).permutation(len(source.train_rows))[: N_TRAIN + N_TEST]
    np.savez(
        asked.out,
        images=source.images[source.train_rows[chosen]].transpose(0, 2, 3, 1),
        labels=source.train_labels[chosen],
        split=np.repeat(["train", "test"], [N_TRAIN, N_TEST]),
        class_names=np.array(source.class_names),
    )


if __name__ == "__main__":
    main()
