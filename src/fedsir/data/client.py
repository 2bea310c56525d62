"""What a client is handed to work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class ClientData:
    """The images and GIVEN labels of one client; there are no true labels on this type.

    Attributes
    ----------
    images : (n, channels, height, width) uint8
    labels : (n,) int64
    mean, std : per channel, of pixels scaled to [0, 1]
    flip, crop_padding : the augmentation that makes sense for these images
    """

    images: Tensor
    labels: Tensor
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool
    crop_padding: int

    def __len__(self) -> int:
        return len(self.labels)
