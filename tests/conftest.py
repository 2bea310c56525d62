"""Shared by all tests: one thread each, the same hypothesis examples every time, and federations dealt by hand."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import hypothesis
import pytest

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData
    from fedsir.data.source import Source

# Before NumPy and torch load: test processes run beside each other, and OpenMP threads that wait for a busy core spin.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

hypothesis.settings.register_profile("fedsir", deadline=None, derandomize=True)
hypothesis.settings.load_profile("fedsir")


@pytest.fixture(scope="session")
def digits() -> "Source":
    """scikit-learn's digits, read once."""
    from fedsir.data.digits import load_digits

    return load_digits(seed=0)


@pytest.fixture(scope="session")
def deal(digits: "Source") -> Callable[..., "FederatedData"]:
    """Return a function that gives each client exactly the named digits, and wrong labels where the test says so."""
    import numpy as np

    from fedsir.data.federation import FederatedData, GroundTruth
    from fedsir.data.noise import realised_transition

    def by_hand(rows: Mapping[str, Sequence[int]], given: Mapping[str, Sequence[int]] | None = None) -> "FederatedData":
        order = np.concatenate([np.asarray(part, np.int64) for part in rows.values()])
        true = digits.train_labels[order]
        offsets = tuple(np.cumsum([0, *map(len, rows.values())]).tolist())
        told = true.copy()
        for (client, part), start in zip(rows.items(), offsets, strict=False):
            if given and client in given:
                told[start : start + len(part)] = given[client]
        owner = np.repeat(list(rows), np.diff(offsets))
        noisy = tuple(k for k in rows if (told != true)[owner == k].any())
        clean = tuple(k for k in rows if k not in noisy)
        transition = realised_transition(true, told, digits.n_classes)
        return FederatedData(
            clients=tuple(rows),
            offsets=offsets,
            images=digits.images,
            image_rows=digits.train_rows[order],
            given_labels=told,
            source_index=order,
            test_rows=digits.test_rows[:100],
            test_labels=digits.test_labels[:100],
            class_names=digits.class_names,
            preprocessing=digits.preprocessing,
            name="dealt by hand",
            sha256="",
            notes=(),
            images_sha256=digits.images_sha256,
            truth=GroundTruth(true, clean, noisy, is_known=True, transition=transition),
        )

    return by_hand
