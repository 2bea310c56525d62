"""Colour changes against Python's own colorsys and by hand."""

import colorsys

import pytest
import torch

from fedsir.data import colour

PIXELS = [(1.0, 0.0, 0.0), (0.2, 0.5, 0.8), (0.3, 0.3, 0.3), (0.9, 0.9, 0.1), (0.0, 0.0, 0.0), (0.7, 0.2, 0.6)]


def images_of(pixels: list[tuple[float, float, float]]) -> torch.Tensor:
    return torch.tensor(pixels)[:, :, None, None]  # one pixel each


def factor(value: float) -> torch.Tensor:
    return torch.tensor(value).view(1, 1, 1, 1)


@pytest.mark.parametrize("turn", [0.0, 0.1, -0.2, 0.5, 1.0])
def test_the_hue_turns_as_in_colorsys(turn: float) -> None:
    turned = colour.turn_hue(images_of(PIXELS), factor(turn))[:, :, 0, 0]
    for pixel, got in zip(PIXELS, turned.tolist(), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*pixel)
        assert got == pytest.approx(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), abs=1e-6)


def test_brightness_contrast_saturation_by_hand() -> None:
    image = torch.tensor([[[[0.2, 0.6]]]])  # grey, two pixels, mean 0.4
    assert colour.adjust_brightness(image, factor(1.5)).flatten().tolist() == pytest.approx([0.3, 0.9])
    assert colour.adjust_brightness(image, factor(2.0)).flatten().tolist() == pytest.approx([0.4, 1.0])  # not 1.2
    assert colour.adjust_contrast(image, factor(0.5)).flatten().tolist() == pytest.approx([0.3, 0.5])
    red = images_of([(1.0, 0.0, 0.0)])
    assert colour.greyscale(red).item() == pytest.approx(0.299)
    assert colour.adjust_saturation(red, factor(0.0)).flatten().tolist() == pytest.approx([0.299] * 3)
    assert colour.adjust_saturation(red, factor(1.0)).flatten().tolist() == pytest.approx([1.0, 0.0, 0.0])


def view(images: torch.Tensor, draws: list[list[float]], **over: float) -> torch.Tensor:
    settings = {"strength": 0.8, "hue": 0.2, "jitter_chance": 0.8, "grey_chance": 0.2} | over
    return colour.colour_view(images, torch.tensor(draws), **settings)


MIDDLE = [0.5, 0.5, 0.5, 0.5]  # factors 1, no turn


def test_each_image_has_its_own_draw() -> None:
    images = images_of([(0.2, 0.5, 0.8)] * 3)
    seen = view(images, [[0.9, 0.0, *MIDDLE[1:], 0.9], [0.1, 0.0, *MIDDLE[1:], 0.9], [0.9, *MIDDLE, 0.1]])
    luma = 0.299 * 0.2 + 0.587 * 0.5 + 0.114 * 0.8
    assert seen[:, :, 0, 0].tolist() == [
        pytest.approx([0.2, 0.5, 0.8]),  # neither jittered nor greyed
        pytest.approx([0.04, 0.1, 0.16]),  # brightness 1 - 0.8
        pytest.approx([luma] * 3),
    ]


def test_middle_draws_change_nothing() -> None:
    images = torch.rand(4, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(view(images, [[0.0, *MIDDLE, 0.9]] * 4), images, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_values_stay_in_range_for_any_number_of_channels(channels: int) -> None:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(50, channels, 4, 4, generator=generator)
    seen = view(images, torch.rand(50, colour.N_DRAWS, generator=generator).tolist())
    assert seen.shape == images.shape
    assert 0 <= seen.min().item() <= seen.max().item() <= 1
    assert not torch.allclose(seen, images)


def test_mirror() -> None:
    images = torch.arange(4.0).view(2, 1, 1, 2)
    assert colour.mirror(images, torch.tensor([0.4, 0.6])).flatten().tolist() == [1.0, 0.0, 2.0, 3.0]
