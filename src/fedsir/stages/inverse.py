"""The inverse of a covariance matrix, with NumPy alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.floating[Any]]
SMALL_MATRIX = 64  # rows, up to which an inverse is not taken by halves


def inverse_of_positive(matrix: Matrix) -> Matrix:
    """Return the inverse of a symmetric positive definite matrix, by halves: products are faster than elimination."""
    n = len(matrix)
    if n <= SMALL_MATRIX:
        small: Matrix = np.linalg.inv(matrix)
        return small
    half = n // 2
    first = inverse_of_positive(matrix[:half, :half])
    along = matrix[half:, :half] @ first
    second = inverse_of_positive(matrix[half:, half:] - along @ matrix[:half, half:])  # of the Schur complement
    across = second @ along
    inverse = np.empty_like(matrix)
    inverse[:half, :half] = first + along.T @ across
    inverse[half:, :half], inverse[:half, half:], inverse[half:, half:] = -across, -across.T, second
    return inverse
