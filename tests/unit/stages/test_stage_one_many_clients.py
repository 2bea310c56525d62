"""Stage I from features to verdict with many clients of few samples."""

import torch

from fedsir.stages.identify import class_directions, class_similarity, off_diagonal_stats
from fedsir.stages.spectrum import class_features
from fedsir.stages.split import OffDiagonal, split_clients

N_CLIENTS, N_NOISY, N_CLASSES, N_FEATURES = 400, 280, 5, 16
TRUE = torch.arange(30) % N_CLASSES  # six samples of a class


def told_by(features: torch.Tensor, given: torch.Tensor) -> OffDiagonal:
    return off_diagonal_stats(class_similarity(class_directions(class_features(features, given, N_CLASSES))))


def test_noisy_clients_are_told_from_clean_ones_with_six_samples_of_a_class() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.eye(N_CLASSES, N_FEATURES) + 0.3 * torch.rand(N_CLASSES, N_FEATURES, generator=generator)
    told = {}
    for k in range(N_CLIENTS):
        features = (centres[TRUE] + 0.15 * torch.randn(len(TRUE), N_FEATURES, generator=generator)).clamp_min(0)
        shift = torch.randint(1, N_CLASSES, TRUE.shape, generator=generator)
        is_wrong = (torch.rand(TRUE.shape, generator=generator) < 0.6) & (k < N_NOISY)
        told[f"client {k}"] = told_by(features, torch.where(is_wrong, (TRUE + shift) % N_CLASSES, TRUE))
    split = split_clients(told, "auto")
    assert split.noisy == tuple(f"client {k}" for k in range(N_NOISY))
    assert split.clean == tuple(f"client {k}" for k in range(N_NOISY, N_CLIENTS))
    assert split.has_two_groups
    assert not split.not_assessed
