"""Random crops and flips of whole uint8 batches, and the step from bytes to network input."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Generator, Tensor


def augment(images: Tensor, *, crop_padding: int, flip: bool, generator: Generator) -> Tensor:
    """Return each image cropped at a random place of its zero-padded self, then mirrored with chance 1/2.

    Parameters
    ----------
    images
        (n, channels, h, w) uint8, before normalisation, so that the padding is black.
    crop_padding
        Pixels of black added on each side before the h × w crop; 0 for no crop.
    flip
        Whether to mirror left and right at all.
    generator
        A CPU generator. Three integers are drawn for each image in turn, whatever the settings: image i
        gets the same crop in a batch of any size, and turning flips off moves no crop.

    Returns
    -------
    (n, channels, h, w) uint8.
    """
    _require_bytes(images)
    if crop_padding < 0:
        raise ValueError(f"crop_padding must be 0 or more, not {crop_padding}")
    n, channels, height, width = images.shape
    draws = torch.randint(2**32, (n, 3), generator=generator).to(images.device)
    if crop_padding == 0 and not flip:
        return images
    n_offsets = 2 * crop_padding + 1
    top = draws[:, 0:1] % n_offsets  # (n, 1)
    left = draws[:, 1:2] % n_offsets
    is_mirrored = (draws[:, 2:3] % 2 == 1) & flip

    # Where in its padded image each output pixel comes from, the same for all channels: one gather.
    row = torch.arange(height, device=images.device) + top  # (n, h)
    column = torch.arange(width, device=images.device)
    column = torch.where(is_mirrored, column.flip(0), column) + left  # (n, w)
    source = row[:, :, None] * (width + 2 * crop_padding) + column[:, None, :]  # (n, h, w)
    source = source.view(n, 1, height * width).expand(n, channels, height * width)

    padded = F.pad(images, (crop_padding,) * 4)
    return padded.flatten(2).gather(2, source).view(n, channels, height, width)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return ``(images / 255 - mean) / std``, channel by channel.

    Parameters
    ----------
    images
        (n, channels, h, w) uint8.
    mean, std
        One number per channel, on the scale [0, 1].

    Returns
    -------
    (n, channels, h, w) float32.
    """
    _require_bytes(images)
    channels = images.shape[1]
    if len(mean) != channels or len(std) != channels:
        raise ValueError(f"{channels} channels need as many means ({len(mean)}) and deviations ({len(std)})")
    # x·scale + shift in place: half the passes over memory of the formula above.
    scale = [1 / (255 * s) for s in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    as_channels = (1, channels, 1, 1)
    x = images.to(torch.float32)
    x.mul_(torch.tensor(scale, dtype=torch.float32, device=x.device).view(as_channels))
    return x.add_(torch.tensor(shift, dtype=torch.float32, device=x.device).view(as_channels))


def _require_bytes(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise TypeError(f"images must be (n, channels, h, w) uint8, not {tuple(images.shape)} {images.dtype}")
