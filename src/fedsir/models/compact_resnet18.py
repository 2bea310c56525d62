"""ResNet-18 for small images: the same function as `ResNet18`, a third of the parameters, several times the speed.

At 32×32 the last stage sees 1×1 maps, where eight of nine taps of a 3×3 kernel only ever meet padding. Such dead taps
change no output, so they are neither trained nor sent. Where the stock model has `NAME.weight`, this one has
`NAME.taps`, (live taps, c_in, c_out), as the matrix products read it; `full_weights` converts back. The one difference
to training the stock model is that weight decay does not shrink weights that do nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedsir.models.position_major import Geometry, convolve, to_position_major
from fedsir.models.resnet18 import FEATURE_DIM, BasicBlock, ResNet18

LARGEST_SIDE = 32  # beyond it the maps are large enough for plain convolutions to do well


class MapConv(nn.Module):
    """A convolution on position-major maps, (h·w, n, c_in) -> (h_out·w_out, n, c_out)."""

    def __init__(self, weight: Tensor, geometry: Geometry) -> None:
        super().__init__()
        self.geometry = geometry
        live = weight.detach()[:, :, geometry.live_rows][:, :, :, geometry.live_columns]
        c_out, c_in = weight.shape[:2]
        self.taps = nn.Parameter(live.permute(2, 3, 1, 0).reshape(-1, c_in, c_out).contiguous())

    def forward(self, x: Tensor) -> Tensor:
        return convolve(x, self.taps, self.geometry)


class MapNorm(nn.BatchNorm1d):
    """Batch normalisation of position-major maps."""

    def __init__(self, norm: nn.BatchNorm2d) -> None:
        super().__init__(norm.num_features, eps=norm.eps, momentum=norm.momentum)
        self.load_state_dict(norm.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.flatten(0, 1)).view(x.shape)


class MapBlock(nn.Module):
    """A `BasicBlock` on position-major maps."""

    def __init__(self, block: BasicBlock, height: int, width: int) -> None:
        super().__init__()
        first = _geometry(block.conv1, height, width)
        self.conv1 = MapConv(block.conv1.weight, first)
        self.bn1 = MapNorm(block.bn1)
        self.conv2 = MapConv(block.conv2.weight, _geometry(block.conv2, first.out_height, first.out_width))
        self.bn2 = MapNorm(block.bn2)
        self.downsample: nn.Sequential | None = None
        if block.downsample is not None:
            conv, norm = block.downsample
            assert isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d)
            self.downsample = nn.Sequential(MapConv(conv.weight, _geometry(conv, height, width)), MapNorm(norm))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)).add_(shortcut), inplace=True)


class CompactResNet18(nn.Module):
    """The faster twin of a `ResNet18` for images of one small size; it takes over the stock model's weights."""

    def __init__(self, stock: ResNet18, image_size: tuple[int, int]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(stock.conv1.in_channels, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = stock.maxpool
        height, width = (_halved(_halved(side)) for side in image_size)
        for name in ("layer1", "layer2", "layer3", "layer4"):
            blocks = []
            for block in getattr(stock, name):
                blocks.append(MapBlock(block, height, width))
                out = blocks[-1].conv1.geometry
                height, width = out.out_height, out.out_width
            self.add_module(name, nn.Sequential(*blocks))
        self.fc = nn.Linear(FEATURE_DIM, stock.fc.out_features)
        for name in ("conv1", "bn1", "fc"):
            getattr(self, name).load_state_dict(getattr(stock, name).state_dict())
        self.conv1.weight.data = self.conv1.weight.data.contiguous(memory_format=torch.channels_last)

    @property
    def head(self) -> nn.Linear:
        """The classifier."""
        return self.fc

    def features(self, x: Tensor) -> Tensor:
        """Return the non-negative penultimate features, (n, in_channels, h, w) -> (n, 512)."""
        x = x.contiguous(memory_format=torch.channels_last)
        x = self.maxpool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        x = to_position_major(x)  # (h·w, n, 64)
        for name in ("layer1", "layer2", "layer3", "layer4"):
            x = getattr(self, name)(x)
        return x.mean(dim=0)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))  # (n, n_classes)
        return logits


def _geometry(conv: nn.Conv2d, height: int, width: int) -> Geometry:
    padding = conv.padding[0]
    assert isinstance(padding, int)
    return Geometry(conv.kernel_size[0], conv.stride[0], padding, height, width)


def _halved(side: int) -> int:
    return (side + 1) // 2


def full_weights(
    trained: Mapping[str, Tensor], compact: CompactResNet18, stock: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return trained weights in torchvision's layout; dead taps are carried over from `stock` untouched."""
    geometries = {name: module.geometry for name, module in compact.named_modules() if isinstance(module, MapConv)}
    full = {}
    for name, tensor in trained.items():
        conv = name.removesuffix(".taps")
        if conv not in geometries:
            full[name] = tensor.clone()
            continue
        rows, columns = geometries[conv].live_rows, geometries[conv].live_columns
        taps = tensor.view(len(rows), len(columns), *tensor.shape[1:]).permute(3, 2, 0, 1)
        kernel = stock[f"{conv}.weight"].detach().clone()
        kernel[:, :, torch.tensor(rows)[:, None], torch.tensor(columns)] = taps
        full[f"{conv}.weight"] = kernel
    return full
