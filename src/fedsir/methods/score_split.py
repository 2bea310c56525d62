"""A mixture of two Gaussians over single numbers: which of them belong to the higher group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedsir.stages.gaussian_groups import fitted_mixture, posterior
from fedsir.stages.split import ClientSplit, two_group_evidence

Array = NDArray[np.float64]


def higher_group(values: Array) -> Array:
    """Return each value's probability of being in the higher of two Gaussian groups, (n,).

    Zeros where there is nothing to tell apart: fewer than two values, or all alike. Neither order nor scale of the
    values matters, and the answer is a function of the values alone.
    """
    values = np.asarray(values, dtype=np.float64)
    if len(values) < 2:
        return np.zeros(len(values))
    centred = values - values.mean()
    spread = centred.std()
    if not spread > 1e-9 * (1e-9 + np.abs(values).max()):
        return np.zeros(len(values))
    standard = (centred / spread)[:, None]
    mixture = fitted_mixture(standard, max_iter=1000, random_state=42)
    return posterior(mixture, standard, int(np.argmax(mixture.means_[:, 0])))


def split_by_score(scores: Mapping[str, float], not_assessed: Mapping[str, str]) -> ClientSplit:
    """Call those clients noisy whose score is in the higher group; nobody where there are no two groups.

    Parameters
    ----------
    scores : client id → a number that noise raises
    not_assessed : client id → reason, of clients without a score
    """
    values = np.array(list(scores.values()), dtype=np.float64)
    in_higher = higher_group(values)
    is_noisy = in_higher > 0.5
    has_two_groups = bool(is_noisy.any() and not is_noisy.all())
    accused = {client for client, is_so in zip(scores, is_noisy, strict=True) if is_so and has_two_groups}
    return ClientSplit(
        clean=tuple(client for client in scores if client not in accused),
        noisy=tuple(client for client in scores if client in accused),
        statistics={},
        posterior_noisy=dict(zip(scores, in_higher.tolist(), strict=True)),
        not_assessed=dict(not_assessed),
        evidence=two_group_evidence(values) if has_two_groups else None,
        has_two_groups=has_two_groups,
        is_forced=True,
    )
