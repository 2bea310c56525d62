"""A small convolutional network: 8×8 digits in seconds, and any larger image."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor, nn

GRID = 2  # the last map is pooled to 2×2: where a stroke is, roughly, tells digits apart
CHANNELS = (32, 64, 32)


class SmallCNN(nn.Module):
    """Three convolutions with batch normalisation, pooled to a coarse grid, for images from 8×8 upward.

    Chosen from ten sketches of federated averaging on scikit-learn's digits (10 clients, α = 2, 15 rounds of one
    epoch; two seeds, compared on the test images, so a guide and no benchmark): group normalisation and averages
    for maxima were less accurate, wider networks level with it or slightly above.
    """

    stride: ClassVar[int] = 1  # of the first two convolutions

    def __init__(self, n_classes: int, in_channels: int = 1) -> None:
        super().__init__()
        first, second, third = CHANNELS
        self.body = nn.Sequential(
            *_convolution(in_channels, first, self.stride),
            *_convolution(first, second, self.stride),
            nn.MaxPool2d(2),
            *_convolution(second, third),
            nn.AdaptiveMaxPool2d(GRID),
            nn.Flatten(),
        )
        self.head = nn.Linear(third * GRID * GRID, n_classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the non-negative penultimate features, (n, in_channels, h, w) -> (n, 128)."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (n, n_classes)
        return logits


class StridedCNN(SmallCNN):
    """The same for images of 32×32 and more: its first maps have a quarter and a sixteenth of the image's pixels."""

    stride = 2


def _convolution(in_channels: int, out_channels: int, stride: int = 1) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )
