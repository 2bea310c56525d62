"""Stage I from features to verdict with many clients of few samples."""

import numpy as np

from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.spectrum import class_features
from fedsir.stages.split import OffDiagonal, split_clients

N_CLIENTS, N_NOISY, N_CLASSES, N_FEATURES = 400, 280, 5, 16
TRUE = np.arange(30) % N_CLASSES  # six samples of a class


def told_by(features: np.ndarray, given: np.ndarray) -> OffDiagonal:
    return off_diagonal_stats(class_similarity(class_directions(class_features(features, given, N_CLASSES))))


def test_noisy_clients_are_told_from_clean_ones_with_six_samples_of_a_class() -> None:
    random = np.random.default_rng(0)
    centres = np.eye(N_CLASSES, N_FEATURES) + 0.3 * random.random((N_CLASSES, N_FEATURES))
    told = {}
    for k in range(N_CLIENTS):
        features = (centres[TRUE] + 0.15 * random.standard_normal((len(TRUE), N_FEATURES))).clip(min=0)
        shift = random.integers(1, N_CLASSES, len(TRUE))
        is_wrong = (random.random(len(TRUE)) < 0.6) & (k < N_NOISY)
        told[f"client {k}"] = told_by(features, np.where(is_wrong, (TRUE + shift) % N_CLASSES, TRUE))
    split = split_clients(told, "auto")
    assert split.noisy == tuple(f"client {k}" for k in range(N_NOISY))
    assert split.clean == tuple(f"client {k}" for k in range(N_NOISY, N_CLIENTS))
    assert split.has_two_groups
    assert not split.not_assessed
