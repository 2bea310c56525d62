"""The paper: three stages as pure functions, no input or output, no hidden randomness.

spectrum   Eq. (1): the class-wise feature spectrum that both spectral stages read
identify   Stage I: class directions, class similarity, off-diagonal statistics
split      Stage I on the server: clean and noisy clients
relabel    Stage II: residual subspaces, references, the two scores, the rules
train      Stage III: logit adjustment, distillation, distance-aware aggregation

Submodules load on first use, so that naming this package does not load torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsir.stages import identify, relabel, spectrum, train

__all__ = ["identify", "relabel", "spectrum", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
