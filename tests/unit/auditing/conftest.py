"""Sites with known wrong labels, small enough for a unit test."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

N_CLASSES, D, EACH = 5, 16, 60


@dataclass(frozen=True)
class Sites:
    """Features (n, d), given labels, true labels and clients (n,)."""

    features: np.ndarray
    given: np.ndarray
    true: np.ndarray
    clients: np.ndarray

    def saved(self, path: Path, **others: np.ndarray) -> Path:
        """Write an npz file to audit."""
        arrays = {"features": self.features, "labels": self.given, "clients": self.clients, **others}
        np.savez(path, **arrays)
        return path


@pytest.fixture
def sites() -> Callable[..., Sites]:
    """Return a function that makes sites, of which some have wrong labels."""

    def make(
        n_sites: int = 5, bad: tuple[int, ...] = (1,), rate: float = 0.4, each: int = EACH, seed: int = 0
    ) -> Sites:
        random = np.random.default_rng(seed)
        centres = random.normal(size=(N_CLASSES, D)) * 2
        true = random.integers(0, N_CLASSES, n_sites * each)
        owner = np.repeat(np.arange(n_sites), each)
        features = (centres[true] + random.normal(size=(len(true), D))).astype(np.float32)
        is_wrong = np.isin(owner, bad) & (random.random(len(true)) < rate)
        given = np.where(is_wrong, (true + random.integers(1, N_CLASSES, len(true))) % N_CLASSES, true)
        names = np.array(["cat", "dog", "eel", "fox", "gnu"])
        return Sites(features, names[given], names[true], np.array([f"site {k}" for k in owner]))

    return make
