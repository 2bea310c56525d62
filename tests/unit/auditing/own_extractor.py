"""Networks that tests hand to `--features MODULE:CLASS`."""

import torch
from torch import nn


class MeanColours(nn.Module):
    """Features are the mean colours of the four quarters of an image."""

    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__()
        self.head = nn.Linear(4 * in_channels, n_classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits


class Pixels(nn.Module):
    """Features are the pixels of an 8×8 image in grey."""

    def __init__(self, n_classes: int, in_channels: int) -> None:
        super().__init__()
        del in_channels
        self.head = nn.Linear(64, n_classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.adaptive_avg_pool2d(x.mean(dim=1), 8).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.features(x))
        return logits
