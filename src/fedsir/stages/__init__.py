"""The paper: three stages as pure functions on tensors, no input or output, no hidden randomness.

spectrum   Eq. (1): the class-wise feature spectrum that both spectral stages read
identify   Stage I: class directions, class similarity, off-diagonal statistics, clean/noisy split
relabel    Stage II: residual subspaces, references, the two scores, the rules
train      Stage III: logit adjustment, distillation, distance-aware aggregation

The mathematics of other methods, in the same style:

centroids             RoFL: class centroids of features, small-loss samples, the guided loss
self_regularisation   FedLSR: two views of a sample that must agree
loss_split            FedNoRo and FedELC: clients split by their mean loss per class
label_logits          FedELC: labels that are learnt with the network
consensus             RHFL: symmetric cross-entropy, confidence in clients, learning from the others' answers
negative              FedNed: uncertainty of a model, learning from what a bad one gets wrong
lid, mixture, correction   FedCorr: intrinsic dimension, two groups of numbers, label correction

Submodules load on first use, so that naming this package does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsir.stages import (
        centroids,
        consensus,
        correction,
        identify,
        label_logits,
        lid,
        negative,
        relabel,
        self_regularisation,
        spectrum,
        train,
    )

__all__ = [
    "centroids",
    "consensus",
    "correction",
    "identify",
    "label_logits",
    "lid",
    "negative",
    "relabel",
    "self_regularisation",
    "spectrum",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
