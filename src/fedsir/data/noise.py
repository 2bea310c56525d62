"""Make labels wrong: pure functions from true labels to given labels, exact in how many they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsir.data.partition import legacy_generator
from fedsir.data.stratify import largest_remainder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedsir.data.arrays import Counts, Floats, Index, Labels
    from fedsir.randomness import KeyedRandom

MOST_NAMES = 5  # clients with a note of their own; more are counted
RATE_TOLERANCE = 0.05  # realised against wanted noise rate, before a note says so


def symmetric(labels: Labels, n_classes: int, rate: float, random: KeyedRandom) -> Labels:
    """Return one client's labels with round(rate·n_c) of each class c turned into any other class.

    Parameters
    ----------
    labels : (n,) true labels of one client
    rate : noise rate in [0, 1]
    random : the client's stream
    """
    given = labels.copy()
    for c in np.unique(labels):
        rng = random.derive("class", int(c)).for_numpy()
        flipped = _choose(labels, int(c), rate, rng)
        given[flipped] = _other_class(rng.integers(n_classes - 1, size=len(flipped)), int(c))
    return given


def flip_to(labels: Labels, targets: Sequence[int], rate: float, random: KeyedRandom) -> Labels:
    """Return one client's labels with round(rate·n_c) of each class c turned into ``targets[c]``.

    A class that is its own target stays as it is.
    """
    given = labels.copy()
    for c in np.unique(labels):
        given[_choose(labels, int(c), rate, random.derive("class", int(c)).for_numpy())] = targets[int(c)]
    return given


def pair_targets(n_classes: int) -> tuple[int, ...]:
    """Return the next class for each class; the last turns into the first."""
    return tuple((c + 1) % n_classes for c in range(n_classes))


def by_transition(labels: Labels, transition: Floats, random: KeyedRandom) -> Labels:
    """Return one client's labels, of which each class c is spread over the classes as row c says.

    Counts are the row's shares of n_c by largest remainder, so that realised rates are exact up to rounding.

    Parameters
    ----------
    labels : (n,) true labels of one client
    transition : (n_classes, n_classes), rows sum to 1
    """
    given = labels.copy()
    for c in np.unique(labels):
        positions = np.flatnonzero(labels == c)
        row = transition[int(c)] / transition[int(c)].sum()
        counts = largest_remainder((row * len(positions)).tolist(), len(positions))
        spread = np.repeat(np.arange(len(row)), counts)
        given[random.derive("class", int(c)).for_numpy().permutation(positions)] = spread
    return given


def authors_symmetric(
    labels: Labels, parts: Sequence[Index], noisy: Sequence[int], n_classes: int, rate: float, seed: int
) -> Labels:
    """Return all labels with symmetric noise exactly as the published implementation draws it.

    One legacy generator serves noisy clients in ascending order and, within a client, classes in ascending
    order: first which samples flip, then one other class for each of them. Where nothing flips,
    nothing is drawn.

    Parameters
    ----------
    labels : (n,) true labels in the order of the data set
    parts : per client, the sorted positions of its samples
    noisy : ascending numbers of the noisy clients
    """
    rng = legacy_generator(seed, "data.noise_draw = authors")
    given = labels.copy()
    for k in noisy:
        mine = _hash_order(labels, parts[k], n_classes)
        for c in range(n_classes):
            of_class = mine[labels[mine] == c]
            n_flipped = round(rate * len(of_class))
            if n_flipped == 0:
                continue
            flipped = rng.choice(of_class, size=n_flipped, replace=False)
            given[flipped] = _other_class(rng.randint(0, n_classes - 1, size=n_flipped), c)
    return given


def realised_transition(true: Labels, given: Labels, n_classes: int) -> Counts:
    """Return (n_classes, n_classes) counts: row c says which labels true class c was given."""
    flat = np.bincount(true * n_classes + given, minlength=n_classes * n_classes)
    return flat.reshape(n_classes, n_classes).astype(np.int64)


def notes(in_vain: Sequence[str], true: Labels, given: Labels, wanted: float | None) -> list[str]:
    """Return what a user would not expect of the noise.

    Parameters
    ----------
    in_vain : clients chosen to be noisy of whose labels none turned out wrong
    true, given : (n,) labels of all noisy clients together
    wanted : the share of them that should be wrong; None if no setting says so
    """
    if len(in_vain) > MOST_NAMES:
        first = ", ".join(map(repr, in_vain[:MOST_NAMES]))
        found = [f"{len(in_vain):,} clients ({first}, …) were chosen to be noisy, but none of their labels is wrong"]
    else:
        found = [f"client {name!r} was chosen to be noisy, but none of its labels turned out wrong" for name in in_vain]
    realised = float(np.mean(true != given)) if len(true) else 0.0
    if wanted is not None and abs(realised - wanted) > RATE_TOLERANCE:
        found.append(
            f"{realised:.0%} of the noisy clients' labels are wrong, not {wanted:.0%} as data.noise_rate says: each "
            "client rounds it class by class, and many have few samples of a class"
        )
    return found


def _choose(labels: Labels, c: int, rate: float, rng: np.random.Generator) -> Index:
    positions = np.flatnonzero(labels == c)
    return rng.permutation(positions)[: round(rate * len(positions))]


def _other_class(draws: Labels, c: int) -> Labels:
    """Turn draws from 0 … n_classes-2 into classes other than c."""
    return draws + (draws >= c)


def _hash_order(labels: Labels, positions: Index, n_classes: int) -> Index:
    """Return a client's positions in the order in which the published implementation meets them.

    It keeps them in a Python set that is joined with another for every class, so the order is that of the
    set's hash table in CPython. A whole number hashes to itself: the order is no simple one, but it is
    always the same.
    """
    by_class = [set(positions[labels[positions] == c].tolist()) for c in range(n_classes)]
    owned = by_class[0]
    for more in by_class[1:]:
        owned = set(owned | more)  # the outer copy may shrink the table, which changes the order
    return np.array(list(owned), np.int64)
