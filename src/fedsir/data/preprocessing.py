"""How images become network input: one value, passed whole. Importing it does not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor


MOST_AT_ONCE = 128  # more images leave the processor's cache: a fifth slower with two workers at 256
PIXELS_AT_ONCE = MOST_AT_ONCE * 32 * 32


def images_at_once(images: Tensor) -> int:
    """Return how many images (n, channels, h, w) to look at in one pass without training: fewer of large ones."""
    return min(MOST_AT_ONCE, max(4, PIXELS_AT_ONCE // (images.shape[2] * images.shape[3])))


@dataclass(frozen=True)
class Preprocessing:
    """Normalisation and augmentation that suit a data set.

    Attributes
    ----------
    mean, std : per channel, of pixels scaled to [0, 1]
    flip : whether a mirrored image means the same
    crop_padding : pixels of black on each side before a random crop; 0 for no crop
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool
    crop_padding: int

    def normalise(self, images: Tensor) -> Tensor:
        """Return network input, (n, channels, h, w) float32, from bytes; see `augment.normalise`."""
        from fedsir.data.augment import normalise

        return normalise(images, self.mean, self.std)

    def draw_crops(self, n: int, generator: Generator) -> Tensor:
        """Return where to crop each of n images and whether to mirror it, (n, 3); see `augment.draw_crops`."""
        from fedsir.data.augment import draw_crops

        return draw_crops(n, crop_padding=self.crop_padding, flip=self.flip, generator=generator)

    def cropped(self, images: Tensor, crops: Tensor) -> Tensor:
        """Return images (n, channels, h, w) uint8 cropped and mirrored as `draw_crops` said."""
        from fedsir.data.augment import cropped

        return cropped(images, crops, crop_padding=self.crop_padding, flip=self.flip)

    def augment(self, images: Tensor, generator: Generator) -> Tensor:
        """Return images (n, channels, h, w) uint8, each with its own random crop and mirror."""
        from fedsir.data.augment import augment

        return augment(images, crop_padding=self.crop_padding, flip=self.flip, generator=generator)
