"""How images become network input: one value, passed whole. Importing it does not load torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator, Tensor


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
