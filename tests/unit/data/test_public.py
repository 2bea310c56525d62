"""Public images: where they come from, that they have no labels, and that held-out ones belong to nobody."""

from pathlib import Path

import numpy as np
import pytest

from fedsir.data.config import DataConfig
from fedsir.data.dealing import build_federation
from fedsir.data.federation import FederatedData
from fedsir.data.own_npz import load_npz_images
from fedsir.data.public import COUNTERPART, load_public
from fedsir.data.source import DATASETS, Source, make_source
from fedsir.errors import ConfigError, DataError
from fedsir.randomness import KeyedRandom
from fedsir.runs.config import parse_config

NOWHERE = Path("nowhere")


def numbered(labels: list[int], clients: list[str] | None = None, n_test: int = 10) -> Source:
    """Return training images whose first two pixels are the sample's number, with ten test images behind them."""
    n = len(labels)
    images = np.zeros((n + n_test, 1, 8, 8), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.arange(n + n_test) // 256, np.arange(n + n_test) % 256
    return make_source(
        "numbered",
        images,
        np.array([*labels, *([labels[0]] * n_test)]),
        tuple("abc"),
        is_test=np.arange(n + n_test) >= n,
        flip=False,
        crop_padding=1,
        clients=None if clients is None else np.array([*clients, *([clients[0]] * n_test)]),
        is_benchmark=True,
    )


def numbers(data: FederatedData) -> list[int]:
    """Return the numbers of the public images."""
    assert data.public_images is not None
    return (data.public_images[:, 0, 0, 0].astype(int) * 256 + data.public_images[:, 0, 0, 1]).tolist()


LABELS = [0] * 120 + [1] * 60 + [2] * 60  # an eighth is 15 + 7.5 + 7.5


# ---------------------------------------------------------------- held out


def test_held_out_images_are_drawn_by_class_and_no_client_has_them() -> None:
    source = numbered(LABELS)
    data = build_federation(DataConfig(n_clients=4, public="held-out"), source, seed=0)
    truth = data.truth
    held = numbers(data)
    assert len(held) == len(set(held)) == 30
    by_class = np.bincount(source.train_labels[held])
    assert by_class[0] == 15
    assert sorted(by_class[1:].tolist()) == [7, 8]
    assert sorted([*held, *data.source_index.tolist()]) == list(range(240))
    assert truth.true_labels is not None and len(truth.true_labels) == 210
    assert (truth.true_labels == source.train_labels[data.source_index]).all()  # rows have not slipped


def test_an_upper_limit_and_the_seed_decide_which() -> None:
    def held(seed: int, size: int = 12) -> list[int]:
        config = DataConfig(n_clients=4, public="held-out", public_size=size)
        return numbers(build_federation(config, numbered(LABELS), seed=seed))

    assert len(held(0)) == 12
    assert held(0) == held(0) != held(1)
    assert len(held(0, size=5000)) == 30


def test_noise_comes_after_holding_out() -> None:
    config = DataConfig(n_clients=4, public="held-out", noise_rate=0.5, noisy_clients="all")
    data = build_federation(config, numbered(LABELS), seed=0)
    truth = data.truth
    assert truth.true_labels is not None
    assert 0.45 < (data.given_labels != truth.true_labels).mean() < 0.55


def test_no_client_and_no_class_loses_its_last_sample() -> None:
    labels = [0] * 40 + [1] * 39 + [2]
    clients = ["large"] * 76 + ["tiny", "small", "small", "rare"]
    for seed in range(5):
        data = build_federation(DataConfig(public="held-out"), numbered(labels, clients), seed=seed)
        assert set(data.clients) == {"large", "tiny", "small", "rare"}
        assert 79 in data.source_index  # the one sample of class 2
        assert len(numbers(data)) >= 8


def test_too_few_to_hold_out_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"would take 1 of 12 training samples.*raise data\.public_size") as problem:
        build_federation(DataConfig(n_clients=2, min_samples=1, public="held-out"), numbered([0, 1, 2] * 4), seed=0)
    assert "\n" not in str(problem.value)


# ---------------------------------------------------------------- another data set


def test_images_of_another_data_set_are_drawn_without_labels() -> None:
    source, others = numbered(LABELS), numbered([0, 1, 2] * 30)
    config = DataConfig(n_clients=4, public="elsewhere", public_size=25)
    data = build_federation(config, source, seed=0, public=others.images)
    drawn = numbers(data)
    assert len(drawn) == len(set(drawn)) == 25
    assert drawn == sorted(drawn)
    assert data.source_index.size == 240  # nothing is taken from the clients
    again = build_federation(config, source, seed=0, public=others.images)
    other_seed = build_federation(config, source, seed=1, public=others.images)
    assert numbers(again) == drawn != numbers(other_seed)
    assert not [name for name in vars(data) if "public" in name and name != "public_images"]


def test_all_are_taken_if_there_are_fewer_than_wanted() -> None:
    images = numbered([0, 1, 2] * 3).images
    data = build_federation(DataConfig(n_clients=4, public="elsewhere"), numbered(LABELS), seed=0, public=images)
    assert len(numbers(data)) == 19


def test_another_shape_is_refused() -> None:
    colour = np.zeros((5, 3, 8, 8), np.uint8)
    with pytest.raises(ConfigError, match=r"its images are 3×8×8, but the federation's are 1×8×8.*held-out"):
        build_federation(DataConfig(public="colourful"), numbered(LABELS), seed=0, public=colour)


@pytest.mark.parametrize(("n_images", "public_size"), [(1, 5000), (5, 1)])
def test_a_single_image_is_too_few(n_images: int, public_size: int) -> None:
    images = np.zeros((n_images, 1, 8, 8), np.uint8)
    config = DataConfig(public="elsewhere", public_size=public_size)
    with pytest.raises(ConfigError, match=rf"2 images are needed; it has {n_images}, .*takes {public_size}"):
        build_federation(config, numbered(LABELS), seed=0, public=images)


def test_a_place_that_is_not_there_is_named_with_its_setting(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"data\.public = nowhere\.npz: unknown dataset 'nowhere\.npz'"):
        load_public(DataConfig(public="nowhere.npz"), data_dir=tmp_path, seed=0)


def test_the_hash_of_the_data_covers_public_images_and_nothing_else_of_the_settings() -> None:
    source = numbered(LABELS)

    def sha256(images: np.ndarray | None = None, **settings: object) -> str:
        return build_federation(DataConfig(n_clients=4, **settings), source, seed=0, public=images).sha256

    without = sha256()
    assert sha256(public_size=7) == without
    images = numbered([0, 1, 2] * 3).images
    one, other = sha256(images, public="elsewhere"), sha256(images + 1, public="elsewhere")
    assert len({without, one, other, sha256(public="held-out")}) == 4


# ---------------------------------------------------------------- reading


def test_nothing_is_read_unless_a_data_set_is_named() -> None:
    assert load_public(DataConfig(), data_dir=NOWHERE, seed=0) is None
    assert load_public(DataConfig(public="held-out"), data_dir=NOWHERE, seed=0) is None


def test_known_data_sets_are_read_by_name() -> None:
    images = load_public(DataConfig(dataset="own.npz", public="digits"), data_dir=NOWHERE, seed=0)
    assert images is not None and images.shape == (1797, 1, 8, 8)
    with pytest.raises(DataError, match="unknown dataset"):
        load_public(DataConfig(public="cifar1000"), data_dir=NOWHERE, seed=0)


def test_an_npz_needs_images_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "public.npz"
    pixels = KeyedRandom(0).for_numpy().integers(0, 256, (6, 8, 8), dtype=np.uint8)
    np.savez(path, images=pixels)
    images = load_public(DataConfig(public=str(path)), data_dir=NOWHERE, seed=0)
    assert images is not None
    np.testing.assert_array_equal(images, pixels[:, None])
    monkeypatch.setenv("HOME", str(tmp_path))
    at_home = load_public(DataConfig(public="~/public.npz"), data_dir=NOWHERE, seed=0)
    assert at_home is not None and len(at_home) == 6
    np.savez(path, labels=np.zeros(3))
    with pytest.raises(DataError, match="no array called 'images'"):
        load_npz_images(path)


# ---------------------------------------------------------------- settings


def settings(method: str, **data: object) -> str | None:
    return parse_config({"method": {"name": method}, "data": data}).data.public


def test_a_method_that_needs_some_gets_the_counterpart() -> None:
    assert settings("rhfl") == settings("fedned") == "held-out"
    assert settings("rhfl", dataset="cifar10") == "cifar100"
    assert settings("rhfl", dataset="cifar100") == "cifar10"
    assert settings("rhfl", dataset="cifar10", public="held-out") == "held-out"
    assert settings("fedavg") is None
    assert settings("fedavg", public="held-out") == "held-out"  # for a comparison on the same samples
    assert COUNTERPART.keys() == DATASETS.keys()


def test_own_data_have_no_counterpart() -> None:
    with pytest.raises(
        ConfigError, match=r"data\.public is missing: rhfl needs unlabelled images.*held-out"
    ) as problem:
        settings("rhfl", dataset="my_images")
    assert "\n" not in str(problem.value)


def test_the_data_set_itself_is_no_public_one() -> None:
    with pytest.raises(ConfigError, match="test images and all: use held-out"):
        settings("rhfl", dataset="cifar10", public="cifar10")
