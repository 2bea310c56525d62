"""Random colour changes of float images, each image its own: brightness, contrast, saturation, hue, greyscale.

Formulas are the usual ones of image libraries. Values are kept in [0, 1]. Images that are not red, green and blue have
no colour to change: of them only brightness and contrast.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

N_DRAWS = 6  # uniform numbers that `colour_view` needs for an image
_LUMA = (0.299, 0.587, 0.114)


def colour_view(
    images: Tensor, draws: Tensor, *, strength: float, hue: float, jitter_chance: float, grey_chance: float
) -> Tensor:
    """Return images (n, channels, h, w) with colours jittered and greyed at random.

    Parameters
    ----------
    draws : (n, 6) uniform in [0, 1): whether to jitter, four factors, whether to grey
    strength : factors of brightness, contrast and saturation lie in [1 - strength, 1 + strength]
    hue : the turn of the colour circle lies in [-hue, hue], a whole turn being 1
    """
    is_jittered, *factors, is_grey = draws.to(images.dtype)[:, :, None, None, None].unbind(dim=1)  # each (n, 1, 1, 1)
    brightness, contrast, saturation = (1 + strength * (2 * factor - 1) for factor in factors[:3])
    jittered = adjust_contrast(adjust_brightness(images, brightness), contrast)
    has_colour = images.shape[1] == 3
    if has_colour:
        jittered = turn_hue(adjust_saturation(jittered, saturation), hue * (2 * factors[3] - 1))
    images = torch.where(is_jittered < jitter_chance, jittered, images)
    return torch.where(is_grey < grey_chance, greyscale(images), images) if has_colour else images


def per_channel(values: Sequence[float], device: str) -> Tensor:
    """Return one number per channel in a shape that goes with images, (1, channels, 1, 1) float32."""
    return torch.tensor(values, dtype=torch.float32, device=device)[None, :, None, None]


def mirror(images: Tensor, draws: Tensor) -> Tensor:
    """Return images (n, channels, h, w), those whose draw (n,) is below 1/2 mirrored left to right."""
    return torch.where(draws[:, None, None, None] < 0.5, images.flip(3), images)


def greyscale(images: Tensor) -> Tensor:
    """Return the brightness of RGB images, (n, 1, h, w)."""
    red, green, blue = images.unbind(dim=1)
    return (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue)[:, None]


def adjust_brightness(images: Tensor, factor: Tensor) -> Tensor:
    """Return factor · image; factor is (n, 1, 1, 1), here and below."""
    return (factor * images).clamp(0, 1)


def adjust_contrast(images: Tensor, factor: Tensor) -> Tensor:
    """Return images drawn towards (factor < 1) or away from the mean brightness of each."""
    grey = greyscale(images) if images.shape[1] == 3 else images
    return _blend(images, grey.mean(dim=(1, 2, 3), keepdim=True), factor)


def adjust_saturation(images: Tensor, factor: Tensor) -> Tensor:
    """Return RGB images drawn towards (factor < 1) or away from their greyscale."""
    return _blend(images, greyscale(images), factor)


def turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Return RGB images with every hue moved on the colour circle; a turn of 1 is once around."""
    value, brightest = images.max(dim=1)
    chroma = value - images.min(dim=1).values  # (n, h, w)
    red, green, blue = images.unbind(dim=1)
    safe = torch.where(chroma > 0, chroma, 1)
    sixths = torch.stack([(green - blue) / safe, (blue - red) / safe + 2, (red - green) / safe + 4], dim=1)
    hue = sixths.gather(1, brightest[:, None]) + 6 * turn  # (n, 1, h, w), in sixths of a turn
    # From hue back to red, green, blue: each is the value minus as much of the chroma as its distance on the circle.
    phase = torch.cat([hue + 5, hue + 3, hue + 1], dim=1).remainder(6)
    return value[:, None] - chroma[:, None] * torch.minimum(phase, 4 - phase).clamp(0, 1)


def _blend(images: Tensor, other: Tensor, factor: Tensor) -> Tensor:
    return (factor * images + (1 - factor) * other).clamp(0, 1)
