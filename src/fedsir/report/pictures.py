"""Images small enough to lie inside a page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

LONGEST_SIDE = 128  # pixels
SMALL = 48  # up to this side an image is shown pixel by pixel, and PNG is the smaller file


@dataclass(frozen=True)
class Picture:
    """An image as a data address, and its size in pixels."""

    source: str
    width: int
    height: int

    @property
    def is_small(self) -> bool:
        """Whether a browser should show its pixels as they are rather than smooth them."""
        return max(self.width, self.height) <= SMALL


def picture_of_array(pixels: NDArray[np.uint8]) -> Picture:
    """Return a picture of (1 or 3, height, width) uint8."""
    from PIL import Image

    return picture(Image.fromarray(pixels[0] if len(pixels) == 1 else np.ascontiguousarray(pixels.transpose(1, 2, 0))))


def picture(image: Image) -> Picture:
    """Return a picture, shrunk to at most `LONGEST_SIDE`; transparent parts become white."""
    from PIL import Image as Images

    if image.mode not in ("L", "RGB"):
        rgba = image.convert("RGBA")
        image = Images.alpha_composite(Images.new("RGBA", rgba.size, "white"), rgba).convert("RGB")
    image = image.copy()
    image.thumbnail((LONGEST_SIDE, LONGEST_SIDE))
    buffer = io.BytesIO()
    if max(image.size) <= SMALL:
        image.save(buffer, "PNG", optimize=True)
        kind = "png"
    else:
        image.save(buffer, "JPEG", quality=82, optimize=True)
        kind = "jpeg"
    content = base64.b64encode(buffer.getvalue()).decode()
    return Picture(f"data:image/{kind};base64,{content}", *image.size)


@dataclass(frozen=True)
class Shown:
    """A sample in a grid of pictures: its labels by name, and lines of small print.

    judged : "right" or "wrong" where the true label is known, else empty
    """

    picture: Picture
    sample: str
    client: str
    given: str
    suggested: str
    lines: tuple[str, ...] = ()
    judged: str = ""

    @property
    def source(self) -> str:
        """What an img element shows."""
        return self.picture.source

    @property
    def width(self) -> int:
        """In pixels."""
        return self.picture.width

    @property
    def height(self) -> int:
        """In pixels."""
        return self.picture.height

    @property
    def is_small(self) -> bool:
        """Whether pixels are shown as they are."""
        return self.picture.is_small


@dataclass(frozen=True)
class Grid:
    """Pictures to look through; the first `limit` are shown until asked for more."""

    pictures: tuple[Shown, ...]
    limit: int = 24

    @property
    def clients(self) -> list[str]:
        """Who has pictures here."""
        return sorted({shown.client for shown in self.pictures})

    @property
    def given(self) -> list[str]:
        """Which given labels there are."""
        return sorted({shown.given for shown in self.pictures})

    @property
    def judgements(self) -> bool:
        """Whether true labels are known."""
        return any(shown.judged for shown in self.pictures)
