"""Methods: one file = one method, found by name in `registry`; `base` is the protocol they share.

The modules below, what they work with, load on first use: naming a method or showing
its settings needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsir.methods import (
        fedcorr_math,
        fedelc_math,
        fedlsr_math,
        fedned_math,
        lid,
        local_training,
        public_batches,
        rhfl_math,
        rofl_math,
        step_draws,
    )

__all__ = [
    "fedcorr_math",
    "fedelc_math",
    "fedlsr_math",
    "fedned_math",
    "lid",
    "local_training",
    "public_batches",
    "rhfl_math",
    "rofl_math",
    "step_draws",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
