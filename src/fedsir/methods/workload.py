"""How much work a run is, in images and calls rather than seconds: what estimates are made of. Needs no torch."""

from __future__ import annotations

from dataclasses import dataclass

FORWARD_SHARE = 1 / 3  # of a training step is its forward pass


@dataclass(frozen=True)
class Size:
    """How large a run is.

    n_samples : training samples of all clients together
    n_participants : clients that are drawn for a round
    n_drawn : about how many training samples they have together
    n_public : images that everybody has
    """

    rounds: int
    n_clients: int
    n_samples: int
    n_participants: int
    n_drawn: float
    n_public: int = 0


@dataclass(frozen=True)
class Work:
    """Work of one kind.

    images : how many go through a training step; a forward pass alone counts as FORWARD_SHARE of an image
    calls : how often a client, or the server, is handed a model and hands one back
    at_once : how many of these calls can be under way at the same time
    """

    images: float
    calls: float
    at_once: int

    def seconds(self, per_image: float, per_call: float, workers: int) -> float:
        """Return how long it takes with so many workers, given the seconds of an image and of a call on one."""
        return (self.images * per_image + self.calls * per_call) / min(workers, self.at_once)
