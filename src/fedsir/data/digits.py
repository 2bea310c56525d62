"""scikit-learn's handwritten digits: 1,797 real 8×8 images that are installed with it."""

from __future__ import annotations

import numpy as np

from fedsir.data.source import Source, make_source
from fedsir.data.stratify import hold_out_fifth
from fedsir.randomness import KeyedRandom

# Asymmetric noise: the usual map for handwritten digits, 2 → 7, 3 → 8, 5 ↔ 6, 7 → 1.
CONFUSED_WITH = (0, 1, 7, 8, 4, 6, 5, 1, 8, 9)


def load_digits(seed: int) -> Source:
    """Return the digits with a stratified fifth, keyed by ``seed``, held out for testing."""
    from sklearn.datasets import load_digits as read_digits

    pixels, labels = read_digits(return_X_y=True)  # (1797, 64) in 0 … 16
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.int64)
    is_test = np.zeros(len(labels), bool)
    is_test[hold_out_fifth(labels, KeyedRandom(seed, ("data", "hold out")))] = True
    return make_source(
        "digits",
        images,
        labels,
        tuple("0123456789"),
        is_test=is_test,
        flip=False,  # a mirrored digit is another sign
        crop_padding=1,
        is_benchmark=True,
        confused_with=CONFUSED_WITH,
    )
