"""Convolutions on small maps as matrix products, without the work that only meets padding.

Here a batch of maps is **position-major**: (h·w, n, channels), so that the values of all samples at one position are
one matrix. A 3×3 kernel is (taps, c_in, c_out), one matrix per tap that ever meets a pixel (a *live* tap); on a 1×1 map
that is the centre tap alone. Two ways to convolve, both equal to `torch.nn.functional.conv2d` up to rounding:

by taps      sum over the (input position, output position) pairs that a tap joins, pair by pair or gathered
Winograd     F(4×4, 3×3): 36 products where 144 would be needed (Lavin & Gray, 2016); its transforms are three small
             constant matrices, here with the padding built in. Rounding errors are a few times those of plain sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

TILE = 4  # side of the output tile of one Winograd product
FEW_POSITIONS = 4  # output positions up to which a product per pair beats gathering columns


@dataclass(frozen=True)
class Geometry:
    """A convolution's shape: kernel side, stride, zero padding, and the map it runs on."""

    kernel: int
    stride: int
    padding: int
    height: int
    width: int

    @property
    def out_height(self) -> int:
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def out_width(self) -> int:
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def live_rows(self) -> tuple[int, ...]:
        """Rows of the kernel that meet at least one pixel."""
        return _live(self.kernel, self.stride, self.padding, self.height, self.out_height)

    @property
    def live_columns(self) -> tuple[int, ...]:
        return _live(self.kernel, self.stride, self.padding, self.width, self.out_width)

    @property
    def is_winograd(self) -> bool:
        """Whether whole 4×4 tiles cover the map and are few enough for dense transforms to pay."""
        fits = self.height % TILE == 0 and self.width % TILE == 0
        return self.kernel == 3 and self.stride == 1 and self.padding == 1 and fits and self.height * self.width <= 64


def _live(kernel: int, stride: int, padding: int, size: int, out_size: int) -> tuple[int, ...]:
    return tuple(k for k in range(kernel) if any(0 <= o * stride - padding + k < size for o in range(out_size)))


@lru_cache
def live_pairs(geometry: Geometry) -> tuple[tuple[int, int, int], ...]:
    """Return every (tap, input position, output position) that meets, taps counted among the live ones."""
    rows, columns = geometry.live_rows, geometry.live_columns
    found = []
    for r, row in enumerate(rows):
        for c, column in enumerate(columns):
            for out in range(geometry.out_height * geometry.out_width):
                i = out // geometry.out_width * geometry.stride - geometry.padding + row
                j = out % geometry.out_width * geometry.stride - geometry.padding + column
                if 0 <= i < geometry.height and 0 <= j < geometry.width:
                    found.append((r * len(columns) + c, i * geometry.width + j, out))
    return tuple(found)


def convolve(x: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
    """Return the convolution of x (h·w, n, c_in) with live taps (t, c_in, c_out): (h_out·w_out, n, c_out)."""
    if geometry.is_winograd:
        way: Any = _Winograd
    else:
        way = _ByPairs if geometry.out_height * geometry.out_width <= FEW_POSITIONS else _ByColumns
    out: Tensor = way.apply(x, taps, geometry)
    return out


class _ByPairs(torch.autograd.Function):
    """One product per pair, straight between the maps: for few output positions."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        out = x.new_empty(geometry.out_height * geometry.out_width, x.shape[1], taps.shape[2])
        add = _Adder(out)
        for tap, i, o in live_pairs(geometry):
            add(o, x[i], taps[tap])
        ctx.save_for_backward(x, taps)
        ctx.geometry = geometry  # type: ignore[attr-defined]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        x, taps = ctx.saved_tensors
        pairs = live_pairs(ctx.geometry)
        grad_taps = torch.empty_like(taps)
        add_taps = _Adder(grad_taps)
        for tap, i, o in pairs:
            add_taps(tap, x[i].T, grad[o])
        if not ctx.needs_input_grad[0]:
            return None, grad_taps, None
        # A stride may skip positions of the input: nobody writes those.
        grad_x = torch.empty_like(x) if len({i for _, i, _ in pairs}) == len(x) else torch.zeros_like(x)
        add_x = _Adder(grad_x)
        for tap, i, o in pairs:
            add_x(i, grad[o], taps[tap].T)
        return grad_x, grad_taps, None


class _Adder:
    """Sums products into the matrices of a tensor; the first one overwrites, so nothing needs to be zeroed."""

    def __init__(self, sums: Tensor) -> None:
        self._sums = sums
        self._written = [False] * len(sums)

    def __call__(self, position: int, left: Tensor, right: Tensor) -> None:
        if self._written[position]:
            self._sums[position].addmm_(left, right)
        else:
            torch.mm(left, right, out=self._sums[position])
            self._written[position] = True


class _ByColumns(torch.autograd.Function):
    """All taps' inputs side by side, then one product: for many output positions."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        (n_taps, c_in, c_out), n = taps.shape, x.shape[1]
        with_padding = torch.cat([x, x.new_zeros(1, n, c_in)])  # the last position stands for all padding
        columns = torch.cat([with_padding[sources] for sources in _sources(geometry)], dim=2)
        ctx.save_for_backward(columns, taps)
        ctx.geometry = geometry  # type: ignore[attr-defined]
        return columns @ taps.view(n_taps * c_in, c_out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        columns, taps = ctx.saved_tensors
        (n_taps, c_in, c_out), (_, n, _) = taps.shape, grad.shape
        flat = grad.reshape(-1, c_out)
        grad_taps = (columns.view(-1, n_taps * c_in).T @ flat).view_as(taps)
        if not ctx.needs_input_grad[0]:
            return None, grad_taps, None
        grad_columns = (flat @ taps.view(n_taps * c_in, c_out).T).view(len(grad), n, n_taps, c_in)
        grad_x = grad.new_zeros(ctx.geometry.height * ctx.geometry.width + 1, n, c_in)
        for tap, sources in enumerate(_sources(ctx.geometry)):
            # No position feeds one tap twice, save the padding, whose sum nobody reads.
            grad_x.index_add_(0, sources, grad_columns[:, :, tap])
        return grad_x[:-1], grad_taps, None


@lru_cache
def _sources(geometry: Geometry) -> Tensor:
    """Return the input position behind each live tap and output position, (taps, out); h·w stands for padding."""
    n_taps = len(geometry.live_rows) * len(geometry.live_columns)
    sources = torch.full((n_taps, geometry.out_height * geometry.out_width), geometry.height * geometry.width)
    for tap, i, o in live_pairs(geometry):
        sources[tap, o] = i
    return sources


class _Winograd(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        n, (_, c_in, c_out) = x.shape[1], taps.shape
        to_tiles, to_products, to_map = _transforms(geometry.height, geometry.width, x.dtype, x.device)
        v = (to_tiles @ x.reshape(len(x), -1)).view(36, -1, c_in)  # (36, tiles·n, c_in)
        u = (to_products @ taps.reshape(9, -1)).view(36, c_in, c_out)
        m = torch.bmm(v, u)  # (36, tiles·n, c_out)
        ctx.save_for_backward(v, u)
        ctx.geometry = geometry  # type: ignore[attr-defined]
        return (to_map @ m.view(to_map.shape[1], -1)).view(len(x), n, c_out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        v, u = ctx.saved_tensors
        (_, c_in, c_out), n = u.shape, grad.shape[1]
        height, width = ctx.geometry.height, ctx.geometry.width
        to_tiles, to_products, to_map = _transforms(height, width, grad.dtype, grad.device)
        grad_m = (to_map.T @ grad.reshape(len(grad), -1)).view(36, -1, c_out)
        grad_u = torch.bmm(v.transpose(1, 2), grad_m)
        grad_taps = (to_products.T @ grad_u.view(36, -1)).view(9, c_in, c_out)
        if not ctx.needs_input_grad[0]:
            return None, grad_taps, None
        grad_v = torch.bmm(grad_m, u.transpose(1, 2))
        grad_x = (to_tiles.T @ grad_v.view(to_tiles.shape[0], -1)).view(height * width, n, c_in)
        return grad_x, grad_taps, None


# One-dimensional F(4, 3) with the points 0, ±1, ±2, ∞: six inputs, three taps, four outputs.
_INPUT = (
    (4, 0, -5, 0, 1, 0),
    (0, -4, -4, 1, 1, 0),
    (0, 4, -4, -1, 1, 0),
    (0, -2, -1, 2, 1, 0),
    (0, 2, -1, -2, 1, 0),
    (0, 4, 0, -5, 0, 1),
)
_TAPS = (
    (1 / 4, 0, 0),
    (-1 / 6, -1 / 6, -1 / 6),
    (-1 / 6, 1 / 6, -1 / 6),
    (1 / 24, 1 / 12, 1 / 6),
    (1 / 24, -1 / 12, 1 / 6),
    (0, 0, 1),
)
_OUTPUT = ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1))


@lru_cache
def _transforms(height: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return the constant matrices map → 36·tiles, 9 taps → 36, and 36·tiles → map, padding included."""
    taps = torch.tensor(_TAPS, dtype=torch.float64)
    rows_in, rows_out = _along(height)
    columns_in, columns_out = _along(width)
    to_tiles = torch.einsum("itp,jsq->ijtspq", rows_in, columns_in).reshape(-1, height * width)
    to_map = torch.einsum("pit,qjs->pqijts", rows_out, columns_out).reshape(height * width, -1)
    to_products = torch.kron(taps, taps)
    return tuple(matrix.to(device, dtype) for matrix in (to_tiles, to_products, to_map))  # type: ignore[return-value]


def _along(size: int) -> tuple[Tensor, Tensor]:
    """Return one axis's transforms: (6, tiles, size) into the tiles, (size, 6, tiles) out of them."""
    n_tiles = size // TILE
    inward = torch.zeros(6, n_tiles, size + 2, dtype=torch.float64)  # one pixel of padding on each side
    outward = torch.zeros(size, 6, n_tiles, dtype=torch.float64)
    for t in range(n_tiles):
        inward[:, t, TILE * t : TILE * t + 6] = torch.tensor(_INPUT, dtype=torch.float64)
        outward[TILE * t : TILE * (t + 1), :, t] = torch.tensor(_OUTPUT, dtype=torch.float64)
    return inward[:, :, 1:-1], outward
