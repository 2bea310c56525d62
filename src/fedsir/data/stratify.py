"""Draw samples so that every class, and within it every client, gives its share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedsir.data.arrays import Index, Labels, Names
    from fedsir.randomness import KeyedRandom


def largest_remainder(shares: Sequence[float], total: int) -> list[int]:
    """Return whole numbers that sum to ``total`` and differ from ``shares`` (same sum) by less than one."""
    whole = [int(share) for share in shares]
    missing = total - sum(whole)
    # Largest fraction first; ties go to the lower position.
    order = sorted(range(len(shares)), key=lambda i: (whole[i] - shares[i], i))
    for i in order[:missing]:
        whole[i] += 1
    return whole


def quota_by_class(counts: Sequence[int], total: int) -> list[int]:
    """Return how many of ``total`` samples each class gives: its share, but at least one if it has any."""
    present = [int(count > 0) for count in counts]
    rest, spare = total - sum(present), sum(counts) - sum(present)
    if rest < 0 or rest > spare:
        raise ValueError(f"cannot draw {total} of {sum(counts)} samples with one of each class")
    shares = [(count - one) * rest / max(spare, 1) for count, one in zip(counts, present, strict=True)]
    return [one + more for one, more in zip(present, largest_remainder(shares, rest), strict=True)]


def draw_by_class(labels: Labels, quota: Sequence[int], random: KeyedRandom, groups: Names | None = None) -> Index:
    """Return the sorted positions of ``quota[c]`` samples of each class c.

    Parameters
    ----------
    labels : (n,) class ids
    quota : (n_classes,) samples wanted, at most as many as the class has
    random : the stream to draw from
    groups : (n,) names; each group then gives its share of the class, rounded up or down
    """
    chosen = [np.empty(0, np.int64)]
    for c, wanted in enumerate(quota):
        positions = np.flatnonzero(labels == c)
        if wanted == 0:
            continue
        rng = random.derive("class", c).for_numpy()
        positions = rng.permutation(positions)
        if groups is not None:
            positions = positions[np.argsort(groups[positions], kind="stable")]
        # Systematic sampling in whole numbers: equal steps through the shuffled class, from a random start.
        start = int(rng.integers(len(positions)))
        chosen.append(positions[(np.arange(wanted) * len(positions) + start) // wanted])
    return np.sort(np.concatenate(chosen))


def hold_out_fifth(labels: Labels, random: KeyedRandom, clients: Names | None = None) -> Index:
    """Return the sorted positions of a stratified fifth, for testing.

    A class of two or more gives at least one sample and keeps at least one; no client loses its last one.
    """
    counts = np.bincount(labels)
    quota = [max(1, round(int(n) / 5)) if n >= 2 else 0 for n in counts]
    return without_last_ones(draw_by_class(labels, quota, random, clients), clients)


def without_last_ones(chosen: Index, clients: Names | None) -> Index:
    """Return the sorted positions without those that would leave a client nothing; clients : (n,) owners, if any."""
    if clients is None:
        return chosen
    is_kept = np.ones(len(clients), bool)
    is_kept[chosen] = False
    emptied = np.setdiff1d(clients, clients[is_kept])
    back = [int(np.flatnonzero(clients == name)[0]) for name in emptied]
    return np.setdiff1d(chosen, np.array(back, np.int64))
