"""Random crops and flips of whole uint8 batches, and the step from bytes to network input.

What is random is drawn on the CPU, and the rest runs where the images are: the same crops on any device.
"""

from __future__ import annotations

from functools import lru_cache
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
    images : (n, channels, h, w) uint8, before normalisation, so that the padding is black
    crop_padding : pixels of black added on each side before the h × w crop; 0 for no crop
    flip : whether to mirror left and right at all
    generator : on the CPU; `draw_crops` says what is drawn from it
    """
    _require_bytes(images)
    crops = draw_crops(len(images), crop_padding=crop_padding, flip=flip, generator=generator)
    return cropped(images, crops.to(images.device), crop_padding=crop_padding, flip=flip)


def draw_crops(n: int, *, crop_padding: int, flip: bool, generator: Generator) -> Tensor:
    """Return where to crop each image and whether to mirror it, (n, 3) int64: top, left, 0 or 1.

    Three integers are drawn for each image in turn, whatever the settings: image i gets the same crop in a batch of any
    size, drawing for a whole epoch at once changes nothing, and turning flips off moves no crop.
    """
    if crop_padding < 0:
        raise ValueError(f"crop_padding must be 0 or more, not {crop_padding}")
    draws = torch.randint(2**32, (n, 3), generator=generator, device="cpu")
    n_offsets = 2 * crop_padding + 1
    return draws % torch.tensor([n_offsets, n_offsets, 2 if flip else 1], device="cpu")


def cropped(images: Tensor, crops: Tensor, *, crop_padding: int, flip: bool) -> Tensor:
    """Return images (n, channels, h, w) uint8 cropped and mirrored as `draw_crops` said; both are on one device."""
    if crop_padding == 0 and not flip:
        return images
    n, channels, height, width = images.shape
    top, left, is_mirrored = crops[:, 0:1], crops[:, 1:2], crops[:, 2:3] == 1  # each (n, 1)

    # Where in its padded image each output pixel comes from, the same for all channels: one gather.
    row = torch.arange(height, device=images.device) + top  # (n, h)
    column = torch.arange(width, device=images.device)
    column = torch.where(is_mirrored, column.flip(0), column) + left  # (n, w)
    source = row[:, :, None] * (width + 2 * crop_padding) + column[:, None, :]  # (n, h, w)
    source = source.view(n, 1, height * width).expand(n, channels, height * width)

    padded = F.pad(images, (crop_padding,) * 4)
    return padded.flatten(2).gather(2, source).view(n, channels, height, width)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return ``(images / 255 - mean) / std``, float32, of images (n, channels, h, w) uint8.

    mean, std : one number per channel, on the scale [0, 1]
    """
    _require_bytes(images)
    channels = images.shape[1]
    if len(mean) != channels or len(std) != channels:
        raise ValueError(f"{channels} channels need as many means ({len(mean)}) and deviations ({len(std)})")
    # x·scale + shift in place: half the passes over memory of the formula above.
    scale, shift = _scale_and_shift(tuple(mean), tuple(std), images.device)
    return images.to(torch.float32).mul_(scale).add_(shift)


@lru_cache  # a batch that had to send these few numbers to a device would make it wait
def _scale_and_shift(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return 1 / (255 std) and -mean / std, each (1, channels, 1, 1) float32 on the device."""
    scale = [1 / (255 * s) for s in std]
    shift = [-m / s for m, s in zip(mean, std, strict=True)]
    both = torch.tensor([scale, shift], dtype=torch.float32, device=device)[:, None, :, None, None]
    return both[0], both[1]


def _require_bytes(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        raise TypeError(f"images must be (n, channels, h, w) uint8, not {tuple(images.shape)} {images.dtype}")
