"""Augmentation: equal to a slow twin that handles one image at a time, seeded, and independent per image."""

import pytest
import torch
from torch import Tensor

from fedsir.data.augment import augment, normalise


def random_images(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


def generator(seed: int = 7) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def slow_augment(images: Tensor, crop_padding: int, flip: bool, source: torch.Generator) -> Tensor:
    """The definition, one image at a time: pad with black, cut out a window, mirror it or not."""
    _, channels, height, width = images.shape
    results = []
    for image in images:
        draw_top, draw_left, draw_mirror = torch.randint(2**32, (3,), generator=source).tolist()
        canvas = torch.zeros(channels, height + 2 * crop_padding, width + 2 * crop_padding, dtype=torch.uint8)
        canvas[:, crop_padding : crop_padding + height, crop_padding : crop_padding + width] = image
        top, left = draw_top % (2 * crop_padding + 1), draw_left % (2 * crop_padding + 1)
        window = canvas[:, top : top + height, left : left + width]
        results.append(window.flip(-1) if flip and draw_mirror % 2 == 1 else window)
    return torch.stack(results)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize("crop_padding", [0, 1, 4])
@pytest.mark.parametrize("shape", [(64, 3, 32, 32), (5, 1, 8, 8), (7, 2, 9, 12)])
def test_equals_the_slow_twin(shape: tuple[int, ...], crop_padding: int, flip: bool) -> None:
    images = random_images(*shape)
    before = images.clone()
    got = augment(images, crop_padding=crop_padding, flip=flip, generator=generator())
    assert torch.equal(got, slow_augment(images, crop_padding, flip, generator()))
    assert torch.equal(images, before)
    assert got.dtype == torch.uint8


def test_three_pixels_by_hand() -> None:
    image = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
    allowed = [[0, 1, 2], [1, 2, 3], [2, 3, 0], [0, 0, 0]]  # shifted by -1, 0, 1, or a row of padding
    allowed += [row[::-1] for row in allowed]
    seen = {
        tuple(augment(image, crop_padding=1, flip=True, generator=generator(seed)).flatten().tolist())
        for seed in range(200)
    }
    assert seen == {tuple(row) for row in allowed}


def test_an_image_does_not_depend_on_its_batch() -> None:
    images = random_images(64, 3, 16, 16)
    others = random_images(64, 3, 16, 16, seed=1)
    others[:20] = images[:20]
    whole = augment(images, crop_padding=4, flip=True, generator=generator())
    assert torch.equal(whole[:20], augment(others, crop_padding=4, flip=True, generator=generator())[:20])
    assert torch.equal(whole[:20], augment(images[:20], crop_padding=4, flip=True, generator=generator()))


def test_settings_do_not_move_the_stream() -> None:
    after = set()
    for crop_padding, flip in [(0, False), (4, False), (0, True), (4, True)]:
        source = generator()
        augment(random_images(10, 1, 8, 8), crop_padding=crop_padding, flip=flip, generator=source)
        after.add(int(torch.randint(2**32, (), generator=source)))
    assert len(after) == 1


def test_all_offsets_and_flips_are_about_equally_frequent() -> None:
    # A single lit pixel in the middle shows offset and mirror; 25 places are expected 400 times each.
    images = torch.zeros(10_000, 1, 5, 5, dtype=torch.uint8)
    images[:, 0, 2, 2] = 255
    places = augment(images, crop_padding=2, flip=True, generator=generator()).flatten(1).argmax(1)
    counts = torch.bincount(places, minlength=25)
    assert counts.min() > 300
    assert counts.max() < 500
    left_lit = torch.tensor([1, 0], dtype=torch.uint8).expand(10_000, 1, 1, 2)
    flipped = augment(left_lit, crop_padding=0, flip=True, generator=generator())[:, 0, 0, 1]
    assert 0.48 < flipped.float().mean() < 0.52


def test_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    augment(random_images(4, 1, 8, 8), crop_padding=1, flip=True, generator=generator())
    assert torch.equal(torch.get_rng_state(), before)


def test_an_empty_batch_stays_empty() -> None:
    empty = torch.empty(0, 3, 8, 8, dtype=torch.uint8)
    assert augment(empty, crop_padding=4, flip=True, generator=generator()).shape == (0, 3, 8, 8)


def test_normalise_is_the_formula() -> None:
    images = random_images(6, 3, 8, 8)
    before = images.clone()
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    got = normalise(images, mean, std)
    as_channels = (1, 3, 1, 1)
    expected = (images.double() / 255 - torch.tensor(mean, dtype=torch.float64).view(as_channels)) / torch.tensor(
        std, dtype=torch.float64
    ).view(as_channels)
    assert got.dtype == torch.float32
    assert torch.allclose(got.double(), expected, rtol=0, atol=1e-6)
    assert torch.equal(images, before)


def test_what_does_not_fit_is_refused() -> None:
    floats = torch.zeros(1, 3, 8, 8)
    with pytest.raises(TypeError, match="uint8"):
        augment(floats, crop_padding=4, flip=True, generator=generator())
    with pytest.raises(TypeError, match="uint8"):
        normalise(floats, [0.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match="crop_padding"):
        augment(random_images(1, 1, 8, 8), crop_padding=-1, flip=True, generator=generator())
    with pytest.raises(ValueError, match="3 channels"):
        normalise(random_images(1, 3, 8, 8), [0.5], [0.5])
