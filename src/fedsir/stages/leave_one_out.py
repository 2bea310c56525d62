"""What the classes of all the others look like to each client, where everybody's features are at hand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import add

from fedsir.stages.discriminant import (
    ClassMoments,
    class_moments,
    discriminant_by_inverse,
    discriminant_scores,
    fewest_of_a_noisy_class,
)
from fedsir.stages.spectrum import Array, Features, Labels

MOST_KEPT = 2**29  # bytes of sums that are kept; those of further clients are made anew when they are needed


class Others:
    """Everybody's features (n, d) and labels (n,) by client, and each one's scores by all the others.

    Sums over a client's samples do not change from pass to pass, only how much they count.
    """

    def __init__(self, clients: Mapping[str, tuple[Features, Labels]], n_classes: int) -> None:
        self.clients, self.n_classes = clients, n_classes
        self.n_features = next(iter(clients.values()))[0].shape[1]
        self._kept: dict[str, ClassMoments] = {}

    def scores(self, trust: Mapping[str, float]) -> Iterator[tuple[str, Array]]:
        """Yield each client and its scores (n, C), by the discriminant of all the others as far as they are trusted."""
        fewest = fewest_of_a_noisy_class(self.n_features)
        total = reduce(add, (self._sums(k).weighted(trust[k]) for k in self.clients))
        for k, (features, _) in self.clients.items():
            fitted = discriminant_by_inverse(total - self._sums(k).weighted(trust[k]), fewest)
            yield k, discriminant_scores(features, fitted)

    def _sums(self, k: str) -> ClassMoments:
        if k in self._kept:
            return self._kept[k]
        sums = class_moments(*self.clients[k], self.n_classes)
        if (len(self._kept) + 1) * (sums.second_moment.nbytes + sums.sums.nbytes) <= MOST_KEPT:
            self._kept[k] = sums
        return sums
