"""Bring an image to the size that `data.image_size` asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

    from fedsir.data.arrays import Images


def height_and_width(image_size: int | tuple[int, int]) -> tuple[int, int]:
    """Return (height, width) in pixels; one number is the side of a square."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


def fit(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Return the image with (height, width) ``size``: scaled until it just covers that, then cropped to its centre.

    The aspect ratio stays. Shrinking averages over all pixels (bilinear, antialiased), so thin lines do not flicker.
    """
    from PIL import Image, ImageOps

    height, width = size
    return ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)


def fit_pixels(pixels: Images, size: tuple[int, int]) -> Images:
    """Return one image (h, w, 1) or (h, w, 3) as (height, width, channels) of that size."""
    from PIL import Image

    if pixels.shape[:2] == size:
        return pixels
    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    return np.asarray(fit(picture, size)).reshape(*size, pixels.shape[2])
