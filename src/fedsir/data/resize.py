"""Bring images to the size that `data.image_size` asks for, and into one array, piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from PIL import Image

    from fedsir.data.arrays import Images

Size = tuple[int, int]
"""Height and width in pixels."""


def height_and_width(image_size: int | Size | None) -> Size | None:
    """Return (height, width) in pixels; one number is the side of a square."""
    return (image_size, image_size) if isinstance(image_size, int) else image_size


def fit(image: Image.Image, size: Size) -> Image.Image:
    """Return the image with (height, width) ``size``: scaled until it just covers that, then cropped to its centre.

    The aspect ratio stays. Shrinking averages over all pixels (bilinear, antialiased), so thin lines do not flicker.
    """
    from PIL import Image, ImageOps

    height, width = size
    return ImageOps.fit(image, (width, height), Image.Resampling.BILINEAR)


def gather(pieces: Iterable[Images], n: int, size: Size | None, where: str) -> Images:
    """Return ``n`` images as one array (n, channels, height, width), each of them fitted to ``size`` if one is given.

    Parameters
    ----------
    pieces : (k, h, w, channels) each, together n images; they are read one by one, so that memory holds one more
        than the result. Without ``size``, all have the same height and width
    where : whose images they are, for the error if they do not fit into memory
    """
    images: Images | None = None
    start = 0
    for piece in pieces:
        height, width = size or piece.shape[1:3]
        if images is None:
            images = _allocate((n, piece.shape[3], height, width), where)
        stop = start + len(piece)
        if piece.shape[1:3] == (height, width):
            images[start:stop] = piece.transpose(0, 3, 1, 2)
        else:
            for row, image in enumerate(piece, start):
                images[row] = _fit_pixels(image, (height, width)).transpose(2, 0, 1)
        start = stop
    assert images is not None and start == n, "readers refuse data without images"
    return images


def _fit_pixels(pixels: Images, size: Size) -> Images:
    """Return one image (h, w, 1) or (h, w, 3) as (height, width, channels) of that size."""
    from PIL import Image

    picture = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else np.ascontiguousarray(pixels))
    return np.asarray(fit(picture, size)).reshape(*size, pixels.shape[2])


def _allocate(shape: tuple[int, int, int, int], where: str) -> Images:
    n_bytes, free = int(np.prod([float(side) for side in shape])), free_memory()
    if free is None or n_bytes < free:
        try:
            return np.empty(shape, np.uint8)
        except (MemoryError, ValueError):  # more than the system gives, or than an address can count
            pass
    n, _, height, width = shape
    raise DataError(
        f"{where}: {n:,} images of {height}×{width} pixels take {n_bytes / 1e9:,.1f} GB, more memory than is free; "
        "shrink them with data.image_size, for instance data.image_size = 64"
    )


def free_memory() -> int | None:
    """Return how many bytes of memory can still be used; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
