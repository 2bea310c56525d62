"""Local intrinsic dimensionality (LID): how many directions a point's neighbourhood spreads in.

A network that learns wrong labels needs more of them: FedCorr (Xu et al., CVPR 2022) tells noisy clients by a high mean
LID of their predictions. Maximum-likelihood estimate of Amsaleg et al. (2015).
"""

from __future__ import annotations

import torch
from torch import Tensor

ENTRIES_AT_ONCE = 2**22  # distances in memory: 34 MB, however many points there are
FEWEST_POINTS = 3  # with a single neighbour the estimate is log 1 = 0 in the denominator
_ZERO, _SOFT = 1e-12, 1e-6


@torch.no_grad()
def local_intrinsic_dimension(points: Tensor, n_neighbours: int = 20, entries_at_once: int = ENTRIES_AT_ONCE) -> Tensor:
    """Return the LID of each point, (n,) float64, on the CPU: -k / (Σ_j log(d_j / (d_k + 1e-6)) + 1e-6).

    d_1 ≤ … ≤ d_k are the Euclidean distances to the nearest other points; with fewer than `n_neighbours` others, k is
    as many as there are. Memory is O(n · d), time O(n² · d). Points that coincide get a value near 0 (the plain formula
    takes the logarithm of 0 there).

    Parameters
    ----------
    points : (n, d) with n ≥ 3
    """
    if len(points) < FEWEST_POINTS:
        raise ValueError(f"LID needs at least {FEWEST_POINTS} points, not {len(points)}")
    there = points.cpu().to(torch.float64)  # accelerators may have no float64
    k = min(n_neighbours, len(there) - 1)
    rows_at_once = max(1, entries_at_once // len(there))
    every_row = torch.arange(len(there), device=there.device)
    return torch.cat([_lid_of(rows, there, k) for rows in every_row.split(rows_at_once)])


def _lid_of(rows: Tensor, points: Tensor, k: int) -> Tensor:
    """Return the LID of some rows of points, (len(rows),)."""
    # Matrix products find the neighbours fast but blur small distances: those of the neighbours are taken again.
    near = torch.cdist(points[rows], points, compute_mode="use_mm_for_euclid_dist")  # (b, n)
    near.scatter_(1, rows[:, None], torch.inf)  # nobody is its own neighbour
    neighbours = near.topk(k, dim=1, largest=False).indices
    distances = (points[rows][:, None] - points[neighbours]).norm(dim=2)  # (b, k)
    farthest = distances.max(dim=1, keepdim=True).values
    return -k / (torch.log((distances + _ZERO) / (farthest + _SOFT)).sum(dim=1) + _SOFT)
