"""Convolutions on small maps as matrix products, without the work that only meets padding.

Here a batch of maps is **position-major**: (h·w, n, channels), so that the values of all samples at one position are
one matrix. A 3×3 kernel is (taps, c_in, c_out), one matrix per tap that ever meets a pixel (a *live* tap); on a 1×1 map
that is the centre tap alone. Two ways to convolve, both equal to `torch.nn.functional.conv2d` up to rounding:

by taps      sum over the (input position, output position) pairs that a tap joins, pair by pair or gathered
Winograd     F(4×4, 3×3): 36 products where 144 would be needed (Lavin & Gray, 2016), and on 2×2 maps 9 where 16 would;
             the transforms are small constant matrices, one axis after the other, here with the padding built in.
             Rounding errors are a few times those of plain sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

TILE = 4  # side of the output tile of one Winograd product
PAIR = 2  # side of a map that is one smaller tile of its own
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
        """Whether the map is two pixels or whole tiles wide, and as high."""
        fits = all(side == PAIR or side % TILE == 0 for side in (self.height, self.width))
        return self.kernel == 3 and self.stride == 1 and self.padding == 1 and fits


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


def to_position_major(x: Tensor) -> Tensor:
    """Return maps (n, c, h, w) as (h·w, n, c)."""
    out: Tensor = _ToPositionMajor.apply(x)  # type: ignore[no-untyped-call]
    return out


class _ToPositionMajor(torch.autograd.Function):
    """Autograd alone would hand back a gradient in an order of its own, and every layer below would crawl over it."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor) -> Tensor:
        ctx.side = x.shape[2:]  # type: ignore[attr-defined]
        return x.permute(2, 3, 0, 1).flatten(0, 1).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        by_position = grad.view(*ctx.side, *grad.shape[1:])
        return by_position.permute(2, 3, 0, 1).contiguous(memory_format=torch.channels_last)


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
        columns = torch.cat([with_padding[sources] for sources in _sources(geometry, x.device)], dim=2)
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
        for tap, sources in enumerate(_sources(ctx.geometry, grad.device)):
            # No position feeds one tap twice, save the padding, whose sum nobody reads.
            grad_x.index_add_(0, sources, grad_columns[:, :, tap])
        return grad_x[:-1], grad_taps, None


@lru_cache
def _sources(geometry: Geometry, device: torch.device) -> Tensor:
    """Return the input position behind each live tap and output position, (taps, out); h·w stands for padding."""
    n_taps = len(geometry.live_rows) * len(geometry.live_columns)
    sources = torch.full((n_taps, geometry.out_height * geometry.out_width), geometry.height * geometry.width)
    for tap, i, o in live_pairs(geometry):
        sources[tap, o] = i
    return sources.to(device)


class _Winograd(torch.autograd.Function):
    """Maps into tiles, taps into one matrix per product, products back into maps."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, taps: Tensor, geometry: Geometry) -> Tensor:
        n, (_, c_in, c_out) = x.shape[1], taps.shape
        use = _transforms(geometry.height, geometry.width, x.dtype, x.device)
        u = (use.of_taps @ taps.reshape(9, -1)).view(-1, c_in, c_out)  # (products, c_in, c_out)
        v = _spread(x, use.rows_in, use.columns_in, use.n_tall).view(len(u), -1, c_in)  # (products, tiles·n, c_in)
        m = torch.bmm(v, u)
        ctx.save_for_backward(v, u)
        ctx.geometry = geometry  # type: ignore[attr-defined]
        return _gather(m, use.rows_out, use.columns_out, use.n_tall).view(len(x), n, c_out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor, None]:
        v, u = ctx.saved_tensors
        (_, c_in, c_out), n = u.shape, grad.shape[1]
        use = _transforms(ctx.geometry.height, ctx.geometry.width, grad.dtype, grad.device)
        grad_m = _spread(grad, use.rows_out.T, use.columns_out.T, use.n_tall).view(len(u), -1, c_out)
        grad_u = torch.bmm(v.transpose(1, 2), grad_m)
        grad_taps = (use.of_taps.T @ grad_u.view(len(u), -1)).view(9, c_in, c_out)
        if not ctx.needs_input_grad[0]:
            return None, grad_taps, None
        grad_v = torch.bmm(grad_m, u.transpose(1, 2))
        grad_x = _gather(grad_v, use.rows_in.T, use.columns_in.T, use.n_tall)
        return grad_x.view(-1, n, c_in), grad_taps, None


def _spread(maps: Tensor, rows: Tensor, columns: Tensor, n_tall: int) -> Tensor:
    """Apply (i·t, h) to the rows and (j·s, w) to the columns of maps (h·w, n, c): (i, j·s, t·n·c), i = n_tall."""
    height, width = rows.shape[1], columns.shape[1]
    by_column = maps.reshape(height, width, -1).transpose(0, 1)  # (w, h, n·c)
    tall = torch.bmm(rows.expand(width, -1, -1), by_column)  # (w, i·t, n·c)
    by_product = tall.view(width, n_tall, -1).transpose(0, 1)  # (i, w, t·n·c)
    return torch.bmm(columns.expand(n_tall, -1, -1), by_product)


def _gather(tiles: Tensor, rows: Tensor, columns: Tensor, n_tall: int) -> Tensor:
    """Apply (w, j·s) and (h, i·t) to tiles in the order that `_spread` leaves: (h, w, n·c)."""
    height, width = rows.shape[0], columns.shape[0]
    by_product = tiles.view(n_tall, columns.shape[1], -1)  # (i, j·s, t·n·c)
    narrow = tiles.new_empty(width, n_tall, by_product.shape[2])  # (w, i, t·n·c)
    torch.bmm(columns.expand(n_tall, -1, -1), by_product, out=narrow.transpose(0, 1))
    narrow = narrow.view(width, rows.shape[1], -1)  # (w, i·t, n·c)
    maps = tiles.new_empty(height, width, narrow.shape[2])
    torch.bmm(rows.expand(width, -1, -1), narrow, out=maps.transpose(0, 1))
    return maps


@dataclass(frozen=True)
class _Transforms:
    """The constant matrices of a map's size, the padding of one pixel built in.

    rows_in : (n_tall·tiles, h), columns_in : (products·tiles, w); from a map into tiles
    of_taps : (products of both axes, 9)
    rows_out : (h, n_tall·tiles), columns_out : (w, products·tiles); from products into a map
    n_tall : products along the rows
    """

    rows_in: Tensor
    columns_in: Tensor
    of_taps: Tensor
    rows_out: Tensor
    columns_out: Tensor
    n_tall: int


@lru_cache
def _transforms(height: int, width: int, dtype: torch.dtype, device: torch.device) -> _Transforms:
    def ready(exact: Tensor) -> Tensor:
        return exact.to(device, dtype)

    rows_in, row_taps, rows_out = _along(height)
    columns_in, column_taps, columns_out = _along(width)
    of_taps = torch.kron(row_taps, column_taps)
    return _Transforms(
        ready(rows_in), ready(columns_in), ready(of_taps), ready(rows_out), ready(columns_out), n_tall=len(row_taps)
    )


def _along(size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return one axis's matrices: into tiles (products·tiles, size), of taps (products, 3), into the map."""
    side = PAIR if size == PAIR else TILE
    inputs, of_taps, outputs = (torch.tensor(matrix, dtype=torch.float64) for matrix in _ALGORITHMS[side])
    n_products, n_tiles = len(of_taps), size // side
    into_tiles = torch.zeros(n_products, n_tiles, size + 2, dtype=torch.float64)  # one pixel of padding on each side
    into_map = torch.zeros(size, n_products, n_tiles, dtype=torch.float64)
    for t in range(n_tiles):
        into_tiles[:, t, side * t : side * (t + 1) + 2] = inputs
        into_map[side * t : side * (t + 1), :, t] = outputs
    return into_tiles[:, :, 1:-1].reshape(-1, size), of_taps, into_map.reshape(size, -1)


# Outputs of one axis from those plus two inputs and three taps: by side of the output tile, the matrices of inputs,
# taps and outputs. Everything is exact in float64.
_ALGORITHMS = {
    # F(4, 3) with the points 0, ±1, ±2, ∞: six products instead of twelve.
    TILE: (
        (
            (4, 0, -5, 0, 1, 0),
            (0, -4, -4, 1, 1, 0),
            (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0),
            (0, 2, -1, -2, 1, 0),
            (0, 4, 0, -5, 0, 1),
        ),
        (
            (1 / 4, 0, 0),
            (-1 / 6, -1 / 6, -1 / 6),
            (-1 / 6, 1 / 6, -1 / 6),
            (1 / 24, 1 / 12, 1 / 6),
            (1 / 24, -1 / 12, 1 / 6),
            (0, 0, 1),
        ),
        ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    ),
    # Two pixels between zeros: w₁x₀ + w₂x₁ and w₀x₀ + w₁x₁ share w₁(x₀ + x₁), so three products do the work of four.
    PAIR: (
        ((0, 1, 1, 0), (0, 0, 1, 0), (0, 1, 0, 0)),
        ((0, 1, 0), (0, -1, 1), (1, -1, 0)),
        ((1, 1, 0), (1, 0, 1)),
    ),
}
