"""What a client is handed to work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from fedsir.data.preprocessing import Preprocessing


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class ClientData:
    """The images and GIVEN labels of one client; there are no true labels on this type.

    Attributes
    ----------
    images : (n, channels, height, width) uint8
    labels : (n,) int64
    preprocessing : how the images are normalised and augmented
    """

    images: Tensor
    labels: Tensor
    n_classes: int
    preprocessing: Preprocessing

    def __len__(self) -> int:
        return len(self.labels)
