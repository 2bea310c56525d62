"""ResNet-18 (He et al. 2016), with torchvision's state-dict keys so that its published weights fit."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsir.errors import ConfigError

FEATURE_DIM = 512


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut: (n, c_in, h, w) -> (n, c_out, ⌈h/stride⌉, ⌈w/stride⌉)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or in_channels != out_channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.bn2(self.conv2(x))
        return F.relu(x + shortcut, inplace=True)


class ResNet18(nn.Module):
    """ResNet-18 with the stock stem, for images from 8×8 upward.

    Parameters
    ----------
    n_classes : outputs of the classifier, stored as ``fc`` (torchvision's key) and reached as ``head``
    in_channels : 3 for colour, 1 for grey. Convolution is linear, so for grey images pretrained weights summed over
        colour (`grey_stem`) give exactly what three equal channels would, at a third of the work
    """

    def __init__(self, n_classes: int, in_channels: int = 3) -> None:
        super().__init__()
        if in_channels not in (1, 3):
            raise ConfigError(f"resnet18 takes images of 1 or 3 channels, not {in_channels}; use small_cnn")
        self.conv1 = nn.Conv2d(in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _stage(64, 64, stride=1)
        self.layer2 = _stage(64, 128, stride=2)
        self.layer3 = _stage(128, 256, stride=2)
        self.layer4 = _stage(256, FEATURE_DIM, stride=2)
        self.fc = nn.Linear(FEATURE_DIM, n_classes)

    @property
    def head(self) -> nn.Linear:
        """The classifier."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """Return the non-negative penultimate features, (n, in_channels, h, w) -> (n, 512)."""
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (n, n_classes)
        return logits


def _stage(in_channels: int, out_channels: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        BasicBlock(in_channels, out_channels, stride),
        BasicBlock(out_channels, out_channels, stride=1),
    )


def grey_stem(conv1_weight: Tensor) -> Tensor:
    """Return the first convolution for grey images, (64, 3, 7, 7) -> (64, 1, 7, 7): summed over colour."""
    return conv1_weight.sum(dim=1, keepdim=True, dtype=torch.float64).to(conv1_weight.dtype)
