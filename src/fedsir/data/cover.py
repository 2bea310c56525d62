"""Choose who is noisy: in the paper's protocol, all but the few clients that together hold every class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedsir.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fedsir.data.arrays import Counts
    from fedsir.data.config import NoisyClients
    from fedsir.randomness import KeyedRandom

COVER_SHARE = 0.09  # of the mean class size: the authors' 450 for CIFAR-10, and 45 for CIFAR-100


def default_cover_min_samples(n_samples: int, n_classes: int) -> int:
    """Return how many samples of a class make a client count as holding it, if no setting says so."""
    return max(1, round(COVER_SHARE * n_samples / n_classes))


def greedy_cover(counts: Counts, min_samples: int) -> tuple[int, ...]:
    """Return, ascending, clients that together hold ``min_samples`` of as many classes as can be.

    Again and again the client that adds most uncovered classes is taken, the lower number at a tie, until no
    client adds any.

    Parameters
    ----------
    counts : (n_clients, n_classes) samples of each class on each client
    min_samples : a client covers a class from this many samples on
    """
    adds = counts >= min_samples  # (n_clients, n_classes) still uncovered classes a client would add
    chosen: list[int] = []
    while adds.any():
        best = int(adds.sum(axis=1).argmax())
        chosen.append(best)
        adds = adds & ~adds[best]
    return tuple(sorted(chosen))


def choose_noisy_clients(
    choice: NoisyClients, names: Sequence[str], counts: Counts, cover_min_samples: int, random: KeyedRandom
) -> tuple[int, ...]:
    """Return, ascending, the numbers of the noisy clients.

    Parameters
    ----------
    choice : the setting ``data.noisy_clients``
    names : (n_clients,) client names
    counts : (n_clients, n_classes) true labels, read for ``cover``
    cover_min_samples : see `greedy_cover`
    random : the stream for a count of clients
    """
    everybody = range(len(names))
    if choice == "none":
        return ()
    if choice == "all":
        return tuple(everybody)
    if choice == "cover":
        clean = greedy_cover(counts, cover_min_samples)
        if not clean:
            raise ConfigError(
                f"no client has {cover_min_samples} samples of any class (the most is {int(counts.max())}), so "
                "data.noisy_clients = cover finds no clean client: lower data.cover_min_samples, or say how many "
                f"clients are noisy (data.noisy_clients = {max(1, round(0.7 * len(names)))}, for instance)"
            )
        if len(clean) == len(names):
            raise ConfigError(
                f"all {len(names)} clients are needed to cover the classes, so data.noisy_clients = cover "
                "leaves nobody to be noisy: use more clients, or say how many or which are noisy"
            )
        return tuple(k for k in everybody if k not in clean)
    if isinstance(choice, int):
        if choice > len(names):
            raise ConfigError(f"data.noisy_clients = {choice}, but there are only {len(names)} clients")
        return tuple(sorted(random.for_numpy().permutation(len(names))[:choice].tolist()))
    known_names, chosen = set(names), set(choice)
    for name in choice:
        if name not in known_names:
            known = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
            raise ConfigError(
                f"data.noisy_clients names {name!r}, but the clients are {known}.{did_you_mean(name, names)}"
            )
    return tuple(k for k in everybody if names[k] in chosen)
