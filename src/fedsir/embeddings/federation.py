"""Features, labels and clients of any kind, checked and coded as numbers."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsir.data.arrays import as_array
from fedsir.data.naming import named_entries, natural_key
from fedsir.embeddings.results import Identification
from fedsir.errors import DataError
from fedsir.stages.leave_one_out import Others
from fedsir.stages.spectrum import ClassFeatures, Features, Labels, class_features

LARGEST = 1e15  # features beyond it, or below its inverse, are scaled
T = TypeVar("T")


class Federation:
    """Samples by client, with labels and clients as numbers.

    labels : (n,) positions in `classes`
    """

    def __init__(self, features: Any, labels: Any, clients: Any) -> None:
        checked = _checked_features(features)
        n, self.n_features = checked.shape
        self.classes, self.labels = _coded("labels", labels, n)
        self.clients, owners = _coded("clients", clients, n)
        if len(self.classes) < 2:
            raise DataError(f"labels: all are {self.classes[0]!r}; similarities of classes need two of them")
        if len(self.clients) < 2:
            raise DataError(f"clients: all samples are of {self.clients[0]!r}; there is nobody to compare it with")
        self._order = np.argsort(owners, kind="stable")
        self._ends = np.cumsum(np.bincount(owners, minlength=len(self.clients)))
        # Each client's features lie together, so that no pass has to gather them again.
        self._features = checked if (np.diff(owners) >= 0).all() else checked[self._order]

    def rows(self, k: int) -> NDArray[np.intp]:
        """Return the rows of client number k."""
        return self._order[(self._ends[k - 1] if k else 0) : self._ends[k]]

    def class_features(self, only: Iterable[int] | None = None) -> Iterable[tuple[str, ClassFeatures]]:
        """Yield each client's number, as text, and what is known of its classes."""
        for k in range(len(self.clients)) if only is None else only:
            yield str(k), class_features(*self.of_client(k), len(self.classes))

    def of_client(self, k: int) -> tuple[Features, Labels]:
        """Return features (n, d) and labels (n,) of client number k, in the order of its rows."""
        rows = self.rows(k)
        return self._features[self._ends[k] - len(rows) : self._ends[k]], self.labels[rows]

    def samples(self) -> dict[str, tuple[Features, Labels]]:
        """Return each client's number, as text, with its features (n, d) and labels (n,)."""
        return {str(k): self.of_client(k) for k in range(len(self.clients))}

    @cached_property
    def others(self) -> Others:
        """What each client is judged by; its sums are kept from one pass to the next."""
        return Others(self.samples(), len(self.classes))

    def named(self, by_number: dict[str, T]) -> dict[Any, T]:
        """Return values by client's number as values by client, in natural order."""
        return {self.clients[k]: by_number[str(k)] for k in range(len(self.clients)) if str(k) in by_number}

    def groups(self, found: Identification | Iterable[Hashable]) -> tuple[set[int], list[int]]:
        """Return the numbers of the noisy and of the clean clients."""
        number = {client: k for k, client in enumerate(self.clients)}
        if isinstance(found, Identification):
            noisy, clean = set(found.noisy), set(found.clean)
            if unseen := [client for client in self.clients if client not in found.n_samples]:
                raise DataError(f"found says nothing of client {unseen[0]!r}: identify these samples first")
        elif isinstance(found, Iterable) and not isinstance(found, str):
            noisy = set(found)
            clean = set(number) - noisy
        else:
            raise DataError(f"found must be what identify returned, or a list of noisy clients, not {found!r}")
        if unknown := (noisy | clean) - set(number):
            raise DataError(f"found: there is no client {unknown.pop()!r} among these samples")
        if not clean:
            raise DataError("found: no client is clean, so there is nobody to learn the classes from")
        return {number[client] for client in noisy}, sorted(number[client] for client in clean)


def _checked_features(features: Any) -> Features:
    array = as_array("features", features)
    if array.ndim != 2:
        raise DataError(f"features have shape {array.shape}; expected (samples, features)")
    if array.dtype.kind not in "fiub":
        raise DataError(f"features must be numbers, not {array.dtype}")
    for axis, what in enumerate(("rows", "columns")):
        if array.shape[axis] == 0:
            raise DataError(f"features have no {what}: their shape is {array.shape}")
    exact: Features = array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    largest = max(float(exact.max()), -float(exact.min()))  # NaN and infinity show in either
    if not math.isfinite(largest):
        is_finite = np.isfinite(exact).all(axis=1)
        row = int(np.flatnonzero(~is_finite)[0])
        raise DataError(f"features: row {row} holds NaN or an infinite value ({int((~is_finite).sum())} such rows)")
    if largest > LARGEST or 0 < largest < 1 / LARGEST:  # only directions matter, and squares must stay numbers
        exact = exact.astype(np.float64) / largest
    return exact


def _coded(what: str, values: Any, n: int) -> tuple[tuple[Any, ...], Labels]:
    """Return the distinct values in natural order, and the position of each entry among them, (n,)."""
    entries, names = named_entries(what, values, n, "rows of features")
    distinct = tuple(sorted(names, key=lambda entry: natural_key(names[entry])))
    position = {entry: i for i, entry in enumerate(distinct)}
    return distinct, np.array([position[entry] for entry in entries], np.int64)
