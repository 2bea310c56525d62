"""Mixtures of Gaussians whose answer depends on the points alone, not on their order or the machine's cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture

Array = NDArray[np.float64]


def fitted_mixture(points: Array, n_groups: int = 2, **settings: Any) -> GaussianMixture:
    """Return a mixture fitted to points (n, d); settings as scikit-learn's `GaussianMixture` has them."""
    from sklearn.mixture import GaussianMixture  # a second to load

    # Its start depends on the order of the rows, so they are sorted.
    ordered = points[np.lexsort(points.T[::-1])]
    with threadpool_limits(1):  # sums have one order on any machine
        return GaussianMixture(n_groups, **settings).fit(ordered)


def posterior(mixture: GaussianMixture, points: Array, group: int) -> Array:
    """Return each point's probability of being in a group of a fitted mixture, (n,)."""
    with threadpool_limits(1):
        probabilities: Array = mixture.predict_proba(points)[:, group]
    return probabilities
