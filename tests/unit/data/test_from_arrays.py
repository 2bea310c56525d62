"""Federations from arrays in memory, and what a client is handed of them."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import fedsir
from fedsir.data.client import ClientData
from fedsir.data.federation import FederatedData
from fedsir.engines.client_store import ClientStore
from fedsir.errors import ConfigError, DataError

N = 30
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (N, 9, 8, 3), dtype=np.uint8)
LABELS = np.arange(N) % 3
CLIENTS = np.array([("north", "south")[i // 15] for i in range(N)])


def objects(*values: Any) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def build(**over: Any) -> FederatedData:
    arrays: dict[str, Any] = {"images": IMAGES, "labels": LABELS, "clients": CLIENTS, **over}
    return FederatedData.from_arrays(arrays.pop("images"), arrays.pop("labels"), arrays.pop("clients"), **arrays)


def test_a_stratified_fifth_is_held_out_and_the_rest_is_sorted_by_client() -> None:
    data = build()
    assert (data.clients, data.class_names, data.image_size, data.channels) == (
        ("north", "south"),
        ("0", "1", "2"),
        (9, 8),
        3,
    )
    assert data.size_by_client == {"north": 12, "south": 12}
    assert np.bincount(data.test_labels).tolist() == [2, 2, 2]
    assert data.sample_names is not None
    rows = [int(name) for name in data.sample_names]
    assert (data.images[data.image_rows] == IMAGES[rows].transpose(0, 3, 1, 2)).all()
    assert (data.given_labels == LABELS[rows]).all()
    assert (CLIENTS[rows][data.rows("south")] == "south").all()
    assert (data.truth.is_known, data.noise_by_client()) == (False, None)
    assert (data.preprocessing.flip, data.preprocessing.crop_padding) == (False, 1)
    assert (build().sha256 == data.sha256) and (build(seed=1).sha256 != data.sha256)


@pytest.mark.parametrize(
    "images",
    [
        torch.from_numpy(IMAGES),
        torch.from_numpy(IMAGES).permute(0, 3, 1, 2).requires_grad_(False),
        (torch.from_numpy(IMAGES).float() / 255).requires_grad_(),
        IMAGES.astype(np.float64) / 255,
        list(IMAGES),
    ],
)
def test_forms_of_images_that_mean_the_same(images: Any) -> None:
    assert build(images=images).sha256 == build().sha256


def test_grey_images_have_one_channel() -> None:
    grey = build(images=IMAGES[..., 0])
    assert grey.images.shape == (N, 1, 9, 8)
    assert build(images=IMAGES[..., :1]).sha256 == grey.sha256


def test_labels_and_clients_of_any_kind() -> None:
    given = {0: "cat 2", 1: ("a", 1), 2: "cat 10"}
    words = objects(*[given[c] for c in LABELS])
    data = build(labels=words, clients=torch.arange(N) // 15, test=(IMAGES[:3], ["cat 10", "cat 2", "cat 2"]))
    assert data.class_names == ("('a', 1)", "cat 2", "cat 10")
    assert data.clients == ("0", "1")
    assert data.test_labels.tolist() == [2, 1, 1]
    assert data.given_labels[:3].tolist() == [1, 0, 2]
    assert build(labels=LABELS * 10).class_names == ("0", "10", "20")


def test_pandas_columns() -> None:
    frame = pd.DataFrame({"image": list(IMAGES), "label": LABELS, "client": pd.Categorical(CLIENTS)})
    frame = frame.set_index(frame.index + 7)  # an index of its own is not a row number
    data = build(images=frame["image"], labels=frame["label"], clients=frame["client"])
    assert data.sha256 == build().sha256


def test_class_names_go_with_names_and_with_positions() -> None:
    names = ["zebra", "ant", "bee"]
    by_position = build(class_names=names)
    by_name = build(labels=[names[c] for c in LABELS], class_names=names)
    assert by_position.class_names == tuple(names)
    assert by_name.sha256 == by_position.sha256
    with pytest.raises(DataError, match="label '2' is neither one of the 2 class_names nor a position"):
        build(class_names=["ant", "bee"])


def test_true_labels_are_the_truth_and_judge_the_held_out() -> None:
    wrong = LABELS.copy()
    wrong[15:] = (wrong[15:] + 1) % 3
    data = build(labels=wrong, true_labels=LABELS)
    assert (data.truth.clean_clients, data.truth.noisy_clients) == (("north",), ("south",))
    assert data.noise_by_client() == {"north": 0, "south": 1}
    assert data.truth.transition.tolist() == [[0, 4, 0], [0, 0, 4], [4, 0, 0]]
    assert data.truth.true_labels is not None and data.sample_names is not None
    assert data.truth.true_labels.tolist() == [int(name) % 3 for name in data.sample_names]
    held = np.setdiff1d(np.arange(N), [int(name) for name in data.sample_names])
    assert data.test_labels.tolist() == LABELS[held].tolist()


def test_test_images_of_ones_own() -> None:
    data = build(test=(IMAGES[:4], LABELS[:4]))
    assert len(data.given_labels) == N
    assert (data.images[data.test_rows] == IMAGES[:4].transpose(0, 3, 1, 2)).all()
    assert data.test_labels.tolist() == [0, 1, 2, 0]


def test_image_size_covers_and_crops_to_the_centre() -> None:
    wide = np.zeros((N, 16, 48), np.uint8)
    wide[:, :, 12:36] = 200  # the middle third and its neighbours, which antialiasing looks at
    data = build(images=wide, image_size=8)
    assert data.image_size == (8, 8)
    assert (data.images == 200).all()
    mixed = [wide[0], *np.full((N - 1, 8, 8), 200, np.uint8)]
    assert build(images=mixed, image_size=(8, 8)).sha256 == data.sha256
    with pytest.raises(DataError, match=r"images differ in form: some are 8×8×1, some 16×48×1 .* set image_size"):
        build(images=mixed)


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"labels": LABELS[1:]}, r"labels have shape \(29,\), but there are 30 images"),
        ({"true_labels": [1]}, r"true_labels have shape \(1,\)"),
        ({"images": IMAGES[:0], "labels": [], "clients": []}, "images: there are no rows"),
        ({"images": IMAGES / 255 * np.nan}, "images hold NaN"),
        ({"images": IMAGES / 1.0}, r"images hold floats from 0 to 255; they must be in \[0, 1\]"),
        ({"images": IMAGES.astype(np.int64)}, "images must be uint8 .* not int64"),
        ({"images": IMAGES[..., :2]}, r"images have shape \(30, 9, 8, 2\)"),
        ({"images": IMAGES[:, :5]}, "images are 5×8 pixels; at least 8×8"),
        ({"labels": np.zeros(N, int)}, "all samples have the same label"),
        *[({"image_size": size}, "image_size = .*: give a side") for size in (4, 8.5, "8", (8,))],
        ({"images": torch.zeros(N, 9, 9, device="meta")}, "images cannot be read as an array"),
        ({"images": [[[1], [2, 3]]] * N}, "images cannot be read as an array"),
        ({"images": None}, "images: there are no rows"),
        ({"crop_padding": -1}, "crop_padding = -1"),
        ({"clients": np.arange(N)}, "too few samples to hold out a fifth"),
        ({"images": [IMAGES[0, ..., 0], *IMAGES[1:]], "image_size": 8}, "some have 1 channel"),
        ({"images": np.zeros((N, 9, 0), np.uint8)}, r"images have shape \(30, 9, 0\)"),
        ({"labels": objects(1, "1", *LABELS[2:])}, "1 and '1' have the same name"),
        ({"test": IMAGES}, r"test: give a pair, \(images, labels\)"),
        ({"test": (IMAGES[:, :8], LABELS)}, "test images are 3×8×8 .* but images are 3×9×8"),
        ({"test": (IMAGES[:2], [0, 7])}, "class '7' has no training sample"),
        ({"class_names": ["a", "a", "b"]}, "class_names names a class twice"),
    ],
)
def test_bad_input_is_a_value_error_that_says_what(over: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        build(**over)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("what", ["labels", "clients"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (LABELS / 1.0, r"are float64; give whole numbers or names; \.astype\(int\) makes whole numbers of them$"),
        (torch.zeros(N), r"are float32; give whole numbers or names"),
        (objects(0.5, *LABELS[1:]), "row 0 is the float 0.5; give whole numbers or names"),
        (np.where(LABELS > 1, np.nan, 1.0), r"row 2 is missing \(nan\)"),
        ([None, *LABELS[1:]], r"row 0 is missing \(None\)"),
        (objects(*LABELS[1:], pd.NA), r"row 29 is missing \(<NA>\)"),
        (np.full(N, "2026-01-01", "datetime64[D]"), r"are datetime64\[D\]; give whole numbers or names$"),
        (objects(*[np.zeros(2)] * N), "row 0 is a ndarray, which is not hashable"),
        ([[1], [2, 3]] * 15, "cannot be read as an array"),
        (CLIENTS[:, None], r"have shape \(30, 1\), but there are 30 .*: give one for each"),
        (["", *CLIENTS[1:]], "row 0 has an empty name"),
        (["\ud800", *CLIENTS[1:]], "is not readable text"),
        (["a\nb", *CLIENTS[1:]], "is not readable text"),
        (objects(10**5000, *LABELS[1:]), "row 0 is an integer of thousands of digits"),
    ],
)
def test_labels_and_clients_are_refused_alike_with_images_and_with_features(
    what: str, values: Any, message: str
) -> None:
    names = {"labels": LABELS, "clients": CLIENTS, what: values}
    for function in (build, lambda **names: fedsir.identify(np.ones((N, 4)), **names)):
        with pytest.raises(DataError, match=f"^{what}:? .*{message}") as caught:
            function(**names)
        assert "\n" not in str(caught.value)


def test_nobody_can_edit_the_data_in_place() -> None:
    mine = IMAGES.transpose(0, 3, 1, 2).copy()
    data = build(images=mine, true_labels=LABELS)
    mine[:] = 0  # the caller's own array is no longer the federation's
    assert data.sha256 == build(true_labels=LABELS).sha256
    assert data.images.any()
    for holder in (data, data.truth):
        for value in vars(holder).values():
            if isinstance(value, np.ndarray):
                with pytest.raises(ValueError, match="read-only"):
                    value[...] = 0


def test_types_that_clients_are_handed_have_no_place_for_the_truth() -> None:
    for kind in (ClientData, ClientStore):
        names = {field.name for field in dataclasses.fields(kind)}
        assert not [name for name in names if "true" in name or "truth" in name or "sample" in name]
    assert "truth" not in vars(ClientStore.of(build(true_labels=LABELS)))


def test_load_takes_the_settings_of_a_data_config() -> None:
    data = FederatedData.load("digits", alpha=2, noise_rate=0.8, n_clients=4, n_train=200, seed=3)
    assert (data.name, data.n_clients, len(data.given_labels), data.truth.is_known) == ("digits", 4, 200, True)
    with pytest.raises(ConfigError, match="There is no setting 'noise_rat'"):
        FederatedData.load("digits", noise_rat=0.8)
    with pytest.raises(ConfigError, match=r"n_clients: must be less .*a very long number"):
        FederatedData.load("digits", n_clients=10**5000)
    with pytest.raises(ConfigError, match=r"noisy_clients = 9+, but there are only 10 clients"):
        FederatedData.load("digits", noise_rate=0.5, noisy_clients="9" * 5000)
    with pytest.raises(ConfigError, match=r"noise_rate: give a share from 0 to 1.*given: 80") as caught:
        FederatedData.load("digits", noise_rate=80)
    assert isinstance(caught.value, ValueError)
