import numpy as np
import pytest

from fedsir.data import instance_noise
from fedsir.data.instance_noise import instance_dependent
from fedsir.data.preprocessing import Preprocessing
from fedsir.randomness import KeyedRandom

RANDOM = KeyedRandom(0, ("test",))
PREPROCESSING = Preprocessing((0.5,), (0.25,), flip=False, crop_padding=0)
N_CLASSES = 4


def given_labels(images: np.ndarray, labels: np.ndarray, rates: dict[int, float]) -> np.ndarray:
    """Return the labels after noise; clients own equal parts in order."""
    n_clients = max(rates) + 1
    parts = np.split(np.arange(len(labels)), n_clients)
    streams = {k: RANDOM.derive("client", k) for k in rates}
    rows = np.arange(len(labels))
    return instance_dependent(labels, parts, rates, streams, images, rows, PREPROCESSING, N_CLASSES, RANDOM)


def test_flip_rates_are_a_truncated_normal_around_the_rate() -> None:
    drawn = instance_noise._flip_rates(20_000, 0.5, RANDOM.for_numpy())
    assert drawn.mean() == pytest.approx(0.5, abs=0.004)  # over five times 0.1 / √20000
    assert drawn.std() == pytest.approx(0.1, abs=0.003)
    near_one = instance_noise._flip_rates(20_000, 0.95, RANDOM.for_numpy())
    assert near_one.mean() == pytest.approx(0.95, abs=0.002)  # cut off on both sides alike
    assert 0.9 <= near_one.min() < near_one.max() <= 1
    assert instance_noise._flip_rates(3, 0.0, RANDOM.for_numpy()).tolist() == [0, 0, 0]
    assert instance_noise._flip_rates(3, 1.0, RANDOM.for_numpy()).tolist() == [1, 1, 1]


def test_equal_images_get_the_same_wrong_label_on_every_client() -> None:
    # Black and white of 1,024 pixels, two deviations from the mean each: logits are 64 apart, so luck decides nothing.
    pictures = 255 * RANDOM.for_numpy().integers(2, size=(8, 1, 32, 32)).astype(np.uint8)
    images, labels = np.tile(pictures, (10, 1, 1, 1)), np.tile(np.arange(8) % N_CLASSES, 10)
    given = given_labels(images, labels, {0: 1.0, 1: 1.0}).reshape(10, 8)
    assert (given == given[0]).all()
    assert (given[0] != np.arange(8) % N_CLASSES).all()


def test_an_image_without_contrast_gets_any_wrong_label() -> None:
    grey = Preprocessing((128 / 255,), (0.25,), flip=False, crop_padding=0)
    labels, rows = np.full(6000, 2), np.zeros(6000, int)
    images = np.full((1, 1, 8, 8), 128, np.uint8)  # the mean: every logit is 0
    given = instance_dependent(labels, [np.arange(6000)], {0: 1.0}, {0: RANDOM}, images, rows, grey, N_CLASSES, RANDOM)
    counts = np.bincount(given, minlength=N_CLASSES)
    assert counts[2] == 0
    assert np.abs(counts[[0, 1, 3]] - 2000).max() < 160  # over four standard deviations of √(6000·2/9) ≈ 37


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    images = RANDOM.for_numpy().integers(256, size=(60, 1, 9, 11)).astype(np.uint8)
    labels = np.arange(60) % N_CLASSES
    whole = given_labels(images, labels, {0: 0.6, 1: 0.3})
    monkeypatch.setattr(instance_noise, "PIXELS_AT_ONCE", 7)
    monkeypatch.setattr(instance_noise, "IMAGES_AT_ONCE", 4)
    assert given_labels(images, labels, {0: 0.6, 1: 0.3}).tolist() == whole.tolist()
    assert (whole != labels).sum() > 20
