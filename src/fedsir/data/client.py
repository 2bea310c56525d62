"""What a client is handed to work with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedsir.data.federation import FederatedData


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


def client_data(data: FederatedData, client: str) -> ClientData:
    """Return what one client of a federation holds; the images share the federation's memory."""
    rows = data.rows(client)
    return ClientData(
        images=torch.from_numpy(data.images[rows]),
        labels=torch.from_numpy(data.given_labels[rows]),
        n_classes=data.n_classes,
        mean=data.mean,
        std=data.std,
        flip=data.flip,
        crop_padding=data.crop_padding,
    )
