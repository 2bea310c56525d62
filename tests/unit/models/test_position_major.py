"""Convolutions on position-major maps against `conv2d`, the slow readable twin."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedsir.models.position_major import Geometry, convolve, live_pairs, to_position_major

GEOMETRIES = {
    "winograd, one tile": Geometry(3, 1, 1, 4, 4),
    "winograd, four tiles": Geometry(3, 1, 1, 8, 8),
    "winograd, two tiles": Geometry(3, 1, 1, 4, 8),
    "pairs, one pixel": Geometry(3, 1, 1, 1, 1),
    "winograd, nine tiles": Geometry(3, 1, 1, 12, 12),
    "winograd, four pixels": Geometry(3, 1, 1, 2, 2),
    "winograd, two pixels by two tiles": Geometry(3, 1, 1, 2, 8),
    "winograd, a tile by two pixels": Geometry(3, 1, 1, 4, 2),
    "pairs, two pixels": Geometry(3, 1, 1, 1, 2),
    "pairs, stride": Geometry(3, 2, 1, 4, 4),
    "pairs, stride to one pixel": Geometry(3, 2, 1, 2, 2),
    "pairs, pointwise stride": Geometry(1, 2, 0, 2, 2),
    "columns, odd map": Geometry(3, 1, 1, 7, 5),
    "columns, stride": Geometry(3, 2, 1, 8, 8),
    "columns, pointwise stride": Geometry(1, 2, 0, 8, 8),
    "columns, odd stride": Geometry(3, 2, 1, 7, 7),
}


def by_conv2d(x: Tensor, kernel: Tensor, geometry: Geometry) -> Tensor:
    maps = x.view(geometry.height, geometry.width, *x.shape[1:]).permute(2, 3, 0, 1)
    out = F.conv2d(maps, kernel, stride=geometry.stride, padding=geometry.padding)
    return out.permute(2, 3, 0, 1).flatten(0, 1)


def live_taps(kernel: Tensor, geometry: Geometry) -> Tensor:
    live = kernel[:, :, geometry.live_rows][:, :, :, geometry.live_columns]
    return live.permute(2, 3, 1, 0).reshape(-1, kernel.shape[1], kernel.shape[0]).contiguous()


def example(geometry: Geometry, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(geometry.height * geometry.width, 5, 3, generator=generator, dtype=dtype)
    kernel = torch.randn(4, 3, geometry.kernel, geometry.kernel, generator=generator, dtype=dtype)
    return x, kernel


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_equals_conv2d(geometry: Geometry) -> None:
    x, kernel = example(geometry, torch.float64)
    torch.testing.assert_close(
        convolve(x, live_taps(kernel, geometry), geometry), by_conv2d(x, kernel, geometry), rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_gradients_equal_conv2d(geometry: Geometry) -> None:
    x, kernel = example(geometry, torch.float64)
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    taps, full = live_taps(kernel, geometry).requires_grad_(), kernel.requires_grad_()
    out = convolve(mine, taps, geometry)
    push = torch.randn(out.shape, generator=torch.Generator().manual_seed(4), dtype=out.dtype)
    out.backward(push)
    by_conv2d(theirs, full, geometry).backward(push)
    assert mine.grad is not None and theirs.grad is not None and taps.grad is not None and full.grad is not None
    torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(taps.grad, live_taps(full.grad, geometry), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_float32_rounds_like_conv2d(geometry: Geometry) -> None:
    x, kernel = example(geometry, torch.float32)
    exact = by_conv2d(x.double(), kernel.double(), geometry)
    scale = exact.abs().max()
    assert (convolve(x, live_taps(kernel, geometry), geometry) - exact).abs().max() < 2e-5 * scale


def test_needs_no_gradient_for_the_input() -> None:
    for geometry in GEOMETRIES.values():
        x, kernel = example(geometry, torch.float64)
        taps = live_taps(kernel, geometry).requires_grad_()
        convolve(x, taps, geometry).sum().backward()
        assert taps.grad is not None and x.grad is None


def test_live_taps_by_hand() -> None:
    # On one pixel only the centre of a 3×3 kernel meets data; stepping by two over 2×2, its lower right quarter.
    assert Geometry(3, 1, 1, 1, 1).live_rows == (1,)
    assert Geometry(3, 2, 1, 2, 2).live_rows == (1, 2)
    assert Geometry(3, 1, 1, 2, 2).live_rows == (0, 1, 2)
    assert len(live_pairs(Geometry(3, 1, 1, 2, 2))) == 16  # every position meets every position
    assert len(live_pairs(Geometry(3, 2, 1, 4, 4))) == 25


def test_position_major_and_back() -> None:
    x = torch.arange(24.0).view(2, 3, 2, 2).contiguous(memory_format=torch.channels_last).requires_grad_()
    out = to_position_major(x)
    assert out.shape == (4, 2, 3)
    assert out[1].tolist() == [[1.0, 5.0, 9.0], [13.0, 17.0, 21.0]]  # row 0, column 1 of each sample's three channels
    (grad,) = torch.autograd.grad(out, x, torch.arange(24.0).view(4, 2, 3))
    assert grad[0, 0].tolist() == [[0.0, 6.0], [12.0, 18.0]]
    assert grad.is_contiguous(memory_format=torch.channels_last)  # the layers below read it in this order
