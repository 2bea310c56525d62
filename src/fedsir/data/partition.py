"""Deal samples to clients. Each function returns sorted positions per client, every sample exactly once."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from fedsir.data.naming import natural_order
from fedsir.errors import ConfigError

if TYPE_CHECKING:
    from fedsir.data.arrays import Floats, Index, Labels, Names
    from fedsir.randomness import KeyedRandom

HIGHEST_LEGACY_SEED = 2**32 - 1


def dirichlet(labels: Labels, n_clients: int, alpha: float, min_samples: int, random: KeyedRandom) -> list[Index]:
    """Deal each class by client shares drawn from Dirichlet(alpha, …, alpha).

    Clients left with fewer than ``min_samples`` then take samples from those who have most.
    """
    if len(labels) < n_clients * min_samples:
        raise ConfigError(
            f"data.min_samples = {min_samples} for data.n_clients = {n_clients} needs "
            f"{n_clients * min_samples} training samples, but there are {len(labels)}: "
            "lower one of the two or use more samples"
        )
    owner = np.empty(len(labels), np.int64)
    for c in np.unique(labels):
        positions = np.flatnonzero(labels == c)
        rng = random.derive("class", int(c)).for_numpy()
        owner[positions] = rng.choice(n_clients, size=len(positions), p=_shares(rng, n_clients, alpha))
    return _fill_up(_by_owner(owner, n_clients), min_samples, random)


def authors_dirichlet(labels: Labels, n_clients: int, alpha: float, seed: int) -> list[Index]:
    """Deal samples exactly as the published implementation does, down to the order of its draws.

    Nothing bounds how few samples a client gets.
    """
    rng = legacy_generator(seed, "data.partition = authors")
    n_classes = int(labels.max()) + 1
    # Which classes a client may own, each with probability 1: always all of them, but it uses up draws.
    rng.binomial(1, 1.0, size=(n_clients, n_classes))
    owner = np.empty(len(labels), np.int64)
    for c in range(n_classes):
        positions = np.flatnonzero(labels == c)
        shares = rng.dirichlet([alpha] * n_clients)
        if not np.isfinite(shares).all():
            raise ConfigError(f"data.alpha = {alpha:g} is too extreme for data.partition = authors: use dirichlet")
        owner[positions] = rng.choice(n_clients, size=len(positions), p=shares)
    return _by_owner(owner, n_clients)


def iid(labels: Labels, n_clients: int, random: KeyedRandom) -> list[Index]:
    """Deal shuffled samples in parts whose sizes differ by at most one."""
    _check_enough(len(labels), n_clients, "data.n_clients")
    order = random.for_numpy().permutation(len(labels))
    return [np.sort(part) for part in np.array_split(order, n_clients)]


def shards(labels: Labels, n_clients: int, shards_per_client: int, random: KeyedRandom) -> list[Index]:
    """Cut the samples, sorted by label, into equal pieces and give each client some of them."""
    n_shards = n_clients * shards_per_client
    _check_enough(len(labels), n_shards, "data.n_clients × data.shards_per_client")
    rng = random.for_numpy()
    shuffled = rng.permutation(len(labels))
    pieces = np.array_split(shuffled[np.argsort(labels[shuffled], kind="stable")], n_shards)
    dealt = rng.permutation(n_shards).reshape(n_clients, shards_per_client)
    return [np.sort(np.concatenate([pieces[i] for i in row])) for row in dealt]


def by_column(clients: Names) -> tuple[tuple[str, ...], list[Index]]:
    """Return the client names in natural order and the positions each one owns."""
    names = natural_order(clients.tolist())
    number = {name: k for k, name in enumerate(names)}
    owner = np.array([number[name] for name in clients.tolist()], np.int64)
    return names, _by_owner(owner, len(names))


def legacy_generator(seed: int, wanted_by: str) -> np.random.RandomState:
    """Return NumPy's legacy generator, which the published implementation draws from."""
    if not 0 <= seed <= HIGHEST_LEGACY_SEED:
        raise ConfigError(f"{wanted_by} needs a seed from 0 to {HIGHEST_LEGACY_SEED}, not {seed}")
    return np.random.RandomState(seed)


def _shares(rng: np.random.Generator, n_clients: int, alpha: float) -> Floats:
    shares: Floats = rng.dirichlet(np.full(n_clients, alpha))
    if np.isfinite(shares).all() and abs(shares.sum() - 1) < 1e-6:
        return shares
    # Beyond floating point the distribution is at its limit: one owner for tiny alpha, equal shares for huge.
    if alpha < 1:
        shares = np.zeros(n_clients)
        shares[int(rng.integers(n_clients))] = 1
        return shares
    return np.full(n_clients, 1 / n_clients)


def _by_owner(owner: Index, n_clients: int) -> list[Index]:
    order = np.argsort(owner, kind="stable")
    ends = np.cumsum(np.bincount(owner, minlength=n_clients))
    return [part.astype(np.int64) for part in np.split(order, ends[:-1])]


def _fill_up(parts: list[Index], min_samples: int, random: KeyedRandom) -> list[Index]:
    """Move single samples from whoever has most (lower number first) to clients below ``min_samples``."""
    needy = [k for k, part in enumerate(parts) if len(part) < min_samples]
    donors = [(-len(part), k) for k, part in enumerate(parts) if len(part) > min_samples]
    heapq.heapify(donors)
    given: dict[int, list[int]] = {}  # donor → its samples in the order in which it gives them away, last first
    taken: dict[int, list[int]] = {}
    for k in needy:
        taken[k] = parts[k].tolist()
        while len(taken[k]) < min_samples:
            negative_size, donor = heapq.heappop(donors)
            if donor not in given:
                given[donor] = random.derive("donor", donor).for_numpy().permutation(parts[donor]).tolist()
            taken[k].append(given[donor].pop())
            if -negative_size - 1 > min_samples:
                heapq.heappush(donors, (negative_size + 1, donor))
    changed = {**given, **taken}
    return [np.sort(np.array(changed[k], np.int64)) if k in changed else part for k, part in enumerate(parts)]


def _check_enough(n_samples: int, n_parts: int, setting: str) -> None:
    if n_samples < n_parts:
        raise ConfigError(f"{setting} = {n_parts} is more than the {n_samples} training samples: lower it")
