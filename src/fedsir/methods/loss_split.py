"""Splitting clients by their mean loss per class, as FedNoRo (Wu et al., IJCAI 2023) and FedELC do. Needs no torch.

A model fits wrong labels later than right ones: early in training, noisy clients have the higher losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedsir.stages.gaussian_groups import fitted_mixture, posterior
from fedsir.stages.split import ClientSplit, two_group_evidence

Array = NDArray[np.float64]
Votes = NDArray[np.bool_]
N_FITS = 9


def comparable_losses(losses: Array) -> Array:
    """Return the mean losses M of K clients and C classes, (K, C) with NaN for absent classes, scaled to [0, 1].

    A class that a client lacks counts as its lowest loss anywhere, that is as clean. Each class is then scaled to
    [0, 1] over the clients. Classes that nobody has, or in which all clients are alike, tell nothing: zeros.
    """
    is_held = ~np.isnan(losses)
    lowest = np.where(is_held, losses, np.inf).min(axis=0)
    filled = np.where(is_held, losses, lowest)
    filled[:, ~is_held.any(axis=0)] = 0.0
    above = filled - filled.min(axis=0)
    span = above.max(axis=0)
    scaled: Array = above / np.where(span > 0, span, 1.0)
    return scaled


def votes_for_noisy(points: Array) -> Votes:
    """Return who is noisy by each of several mixtures of two Gaussians over the rows of points (K, C), (N_FITS, K).

    The mixtures differ in the seed of their start alone. The noisy component is the one whose mean has the larger sum.
    """
    mixtures = [fitted_mixture(points, random_state=seed) for seed in range(N_FITS)]
    return np.array(
        [posterior(mixture, points, int(np.argmax(mixture.means_.sum(axis=1)))) > 0.5 for mixture in mixtures]
    )


def most_frequent(votes: Votes) -> tuple[Votes, int]:
    """Return the row of votes (m, K) that is most frequent, (K,), the first of several, and how often it occurs."""
    row, count = Counter(map(tuple, votes.tolist())).most_common(1)[0]
    return np.array(row, dtype=np.bool_), count


def split_by_losses(
    losses_by_client: Mapping[str, Sequence[float]], missing: Mapping[str, str] | None = None
) -> tuple[ClientSplit, int]:
    """Split clients into clean and noisy by their mean loss per class; return how many of nine fits said so, too.

    In the split, `statistics` are the mean losses as sent, `posterior_noisy` is the share of the fits that call a
    client noisy, and `evidence` is about the clients' mean scaled losses. With fewer than two clients, or none that
    differ, nobody is accused. Else two groups are always found, also where there is one: see `evidence`.

    Parameters
    ----------
    losses_by_client : client id → mean loss of its samples of each class, NaN for a class it lacks
    missing : client id → reason, for clients that sent nothing; they are not assessed
    """
    n_classes = len(next(iter(losses_by_client.values()), ()))
    points = np.array(list(losses_by_client.values()), dtype=np.float64).reshape(len(losses_by_client), n_classes)
    points = comparable_losses(points) if losses_by_client else points
    votes = np.zeros((N_FITS, len(losses_by_client)), dtype=np.bool_)
    evidence = None
    has_two_groups = len(points) >= 2 and bool(np.ptp(points, axis=0).any())
    if has_two_groups:
        votes = votes_for_noisy(points)
        means = points.mean(axis=1)
        evidence = two_group_evidence(means) if np.ptp(means) > 0 else None
    verdict, n_agreeing = most_frequent(votes)
    split = ClientSplit(
        clean=tuple(client for client, is_noisy in zip(losses_by_client, verdict, strict=True) if not is_noisy),
        noisy=tuple(client for client, is_noisy in zip(losses_by_client, verdict, strict=True) if is_noisy),
        statistics={client: tuple(float(loss) for loss in losses) for client, losses in losses_by_client.items()},
        posterior_noisy={client: float(p) for client, p in zip(losses_by_client, votes.mean(axis=0), strict=True)},
        not_assessed=dict(missing or {}),
        evidence=evidence,
        has_two_groups=has_two_groups,
        is_forced=True,
    )
    return split, n_agreeing
