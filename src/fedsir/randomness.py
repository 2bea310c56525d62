"""Keyed randomness: every draw comes from a generator named by (seed, purpose, client, round, …).

Nothing is seeded globally, so neither the order of execution nor the number of workers changes a draw.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

Key = str | int


@dataclass(frozen=True)
class KeyedRandom:
    """A named place in the tree of random streams; cheap to make, holds no state."""

    seed: int
    key: tuple[Key, ...] = ()

    def derive(self, *key: Key) -> KeyedRandom:
        """Return the stream below this one called ``key``."""
        return KeyedRandom(self.seed, (*self.key, *key))

    def integer(self) -> int:
        """Return this stream's 63-bit seed: a hash, so that neighbouring keys are unrelated."""
        # JSON keeps 1 and "1", and ("ab",) and ("a", "b"), apart.
        text = json.dumps([self.seed, *self.key], ensure_ascii=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1

    def for_numpy(self) -> np.random.Generator:
        """Return a fresh NumPy generator at the start of this stream."""
        return np.random.Generator(np.random.PCG64(self.integer()))

    def for_torch(self) -> torch.Generator:
        """Return a fresh CPU torch generator at the start of this stream (same numbers on any device)."""
        import torch

        return torch.Generator().manual_seed(self.integer())
