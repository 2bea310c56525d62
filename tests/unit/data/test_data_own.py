import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsir.data.source import DATASETS, load_source
from fedsir.errors import DataError

N = 60
RNG = np.random.default_rng(0)
GOOD = {
    "images": RNG.integers(0, 256, (N, 10, 12, 3), dtype=np.uint8),
    "labels": np.arange(N) % 3,
    "clients": np.array([f"site-{i % 4}" for i in range(N)]),
}


def load(path: Path, seed: int = 0):
    return load_source(str(path), data_dir=Path("nowhere"), seed=seed)


def npz(folder: Path, **changes: object) -> Path:
    arrays = {name: array for name, array in {**GOOD, **changes}.items() if array is not None}
    np.savez(folder / "own.npz", **arrays)
    return folder / "own.npz"


def test_an_npz_with_clients_keeps_them(tmp_path: Path) -> None:
    source = load(npz(tmp_path))
    assert source.train_images.shape == (48, 3, 10, 12)
    assert source.test_images.shape == (12, 3, 10, 12)
    assert source.train_images.flags.c_contiguous
    assert set(source.clients) == {f"site-{i}" for i in range(4)}
    found = source.preprocessing
    assert (source.class_names, source.name, found.flip, found.crop_padding) == (("0", "1", "2"), "own", False, 1)
    assert not source.is_benchmark
    together = {image.tobytes() for image in [*source.train_images, *source.test_images]}
    assert together == {image.transpose(2, 0, 1).tobytes() for image in GOOD["images"]}
    pixels = source.train_images / 255
    assert source.preprocessing.mean == pytest.approx(pixels.mean(axis=(0, 2, 3)))
    assert source.preprocessing.std == pytest.approx(pixels.std(axis=(0, 2, 3)))


def test_the_seed_keys_the_held_out_fifth(tmp_path: Path) -> None:
    path = npz(tmp_path)
    assert load(path, 1).sha256 == load(path, 1).sha256
    assert load(path, 1).sha256 != load(path, 2).sha256


def test_an_npz_may_say_which_samples_are_for_testing(tmp_path: Path) -> None:
    split = np.array(["train"] * 50 + ["test"] * 10)
    source = load(npz(tmp_path, split=split, clients=None))
    assert source.clients is None
    assert source.train_labels.tolist() == GOOD["labels"][:50].tolist()
    assert source.test_labels.tolist() == GOOD["labels"][50:].tolist()


def test_labels_may_be_names_and_clients_numbers(tmp_path: Path) -> None:
    words = np.array(["dog", "cat", "ant"])[GOOD["labels"]]
    source = load(npz(tmp_path, labels=words, clients=np.arange(N) % 2, images=GOOD["images"][..., 0]))
    assert source.class_names == ("ant", "cat", "dog")
    assert source.train_images.shape[1] == 1
    assert set(source.clients) == {"0", "1"}
    named = load(npz(tmp_path, labels=words, class_names=np.array(["dog", "cat", "ant"])))
    assert named.class_names == ("dog", "cat", "ant")


def test_constant_images_can_be_normalised(tmp_path: Path) -> None:
    source = load(npz(tmp_path, images=np.full((N, 8, 8), 51, np.uint8)))
    assert source.preprocessing.mean == pytest.approx((0.2,))
    assert source.preprocessing.std == (1e-3,)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"labels": None}, "no array called 'labels'"),
        ({"images": None}, "no array called 'images'"),
        ({"labels": GOOD["labels"][:-1]}, r"'labels' has shape \(59,\)"),
        ({"labels": GOOD["labels"] - 1}, "negative"),
        ({"labels": GOOD["labels"] + 0.5}, "'labels' must be integers"),
        ({"labels": GOOD["labels"] == 1}, "'labels' must be integers"),
        ({"labels": GOOD["labels"] * 2}, "class '1' has no training sample"),
        ({"labels": GOOD["labels"] + 10**9}, "too large"),
        ({"labels": np.zeros(N, np.int64)}, "two classes"),
        ({"labels": np.array([None] * N)}, "unpickled"),
        ({"images": GOOD["images"][:0]}, "no samples"),
        ({"images": GOOD["images"].astype("float32") * np.nan}, "'images' must be uint8"),
        ({"images": GOOD["images"].transpose(0, 3, 1, 2)}, "expected"),
        ({"images": GOOD["images"][:, :7]}, "at least 8×8"),
        ({"images": np.uint8(3)}, "empty"),
        ({"clients": np.array([""] * N)}, "empty name"),
        ({"clients": np.arange(N) / 2}, "'clients' must hold text"),
        ({"split": np.array(["train"] * N)}, "no sample has 'test'"),
        ({"split": np.array(["train", "test", "val"] * 20)}, "'val'"),
        ({"class_names": np.array(["a", "b"])}, "label 2 is too large"),
        ({"class_names": np.array(["a", "b", "c", "d"])}, "class 'd' has no training sample"),
        ({"class_names": np.array(["a", "b", "b"])}, "twice"),
        ({"client": GOOD["clients"], "clients": None}, "Did you mean 'clients'"),
    ],
)
def test_bad_npz_are_refused(tmp_path: Path, changes: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        load(npz(tmp_path, **changes))
    assert "\n" not in str(caught.value)


class Trap:
    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self.mark,)


def test_a_pickle_in_an_npz_never_runs(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    with pytest.raises(DataError, match="unpickled"):
        load(npz(tmp_path, labels=np.array([Trap(str(mark))] * N, dtype=object)))
    assert not mark.exists()


def test_what_is_no_npz_is_said(tmp_path: Path) -> None:
    path = tmp_path / "text.npz"
    path.write_text("not a zip")
    with pytest.raises(DataError, match="not an npz file"):
        load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images", "text")
        archive.writestr("labels", "text")
    with pytest.raises(DataError, match="npz"):
        load(path)
    path.write_bytes(npz(tmp_path).read_bytes()[:-500])
    with pytest.raises(DataError, match="npz"):
        load(path)


def test_arrays_without_a_use_are_noted(tmp_path: Path) -> None:
    assert load(npz(tmp_path, weather=np.zeros(3))).notes == ("own.npz: ignored the array 'weather'",)


def test_unknown_names_suggest_known_ones() -> None:
    with pytest.raises(DataError, match=r"digits, cifar10, cifar100.*Did you mean 'cifar10'"):
        load_source("cifar11", data_dir=Path(), seed=0)


def test_digits() -> None:
    source = load_source("digits", data_dir=Path("nowhere"), seed=0)
    assert source.train_images.shape[1:] == (1, 8, 8)
    assert len(source.train_labels) + len(source.test_labels) == 1797
    assert len(source.test_labels) == 359  # a fifth of each class, rounded
    assert source.train_images.max() == 255
    assert (source.preprocessing.flip, source.preprocessing.crop_padding, source.is_benchmark) == (False, 1, True)
    assert len(source.class_names) == DATASETS["digits"].n_classes


def write_images(root: Path, clients: list[str], classes: list[str], n: int = 5, size: int = 9) -> None:
    for client in clients:
        for name in classes:
            folder = root / client / name
            folder.mkdir(parents=True)
            for i in range(n):
                pixels = RNG.integers(0, 256, (size, size, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")


def test_a_folder_of_clients(tmp_path: Path) -> None:
    write_images(tmp_path, ["berlin", "são paulo"], ["class 2", "class 10"])
    (tmp_path / "README.txt").write_text("x")
    (tmp_path / "berlin" / ".DS_Store").write_text("x")
    source = load(tmp_path)
    assert source.class_names == ("class 2", "class 10")
    assert set(source.clients) == {"berlin", "são paulo"}
    assert (len(source.train_labels), len(source.test_labels)) == (16, 4)
    assert source.notes == (f"{tmp_path.name}: ignored 2 hidden, text or database files",)
    for name, image, label, client in zip(
        source.sample_names, source.train_images, source.train_labels, source.clients, strict=True
    ):
        assert name.split("/")[:2] == [client, source.class_names[label]]
        assert (np.asarray(Image.open(tmp_path / name)).transpose(2, 0, 1) == image).all()


@pytest.mark.parametrize("test_has_clients", [True, False])
def test_a_folder_may_have_a_train_and_a_test_part(tmp_path: Path, test_has_clients: bool) -> None:
    write_images(tmp_path / "train", ["a", "b"], ["x", "y"], n=2)
    if test_has_clients:
        write_images(tmp_path / "test", ["c"], ["x", "y"], n=3)
    else:
        write_images(tmp_path, ["test"], ["x", "y"], n=3)
    source = load(tmp_path)
    assert set(source.clients) == {"a", "b"}
    assert (len(source.train_labels), len(source.test_labels)) == (8, 6)
    assert all(name.startswith("train/") for name in source.sample_names)


def test_clients_may_be_called_train_and_test(tmp_path: Path) -> None:
    write_images(tmp_path, ["train", "test"], ["x", "y"])
    assert set(load(tmp_path).clients) == {"train", "test"}


def test_grey_and_colour_are_brought_together(tmp_path: Path) -> None:
    write_images(tmp_path, ["a", "b"], ["x", "y"])
    grey = Image.fromarray(np.full((9, 9), 77, np.uint8))
    grey.save(tmp_path / "a" / "x" / "grey.png")
    source = load(tmp_path)
    assert source.train_images.shape[1] == 3
    for path in tmp_path.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    assert load(tmp_path).train_images.shape[1] == 1


def test_transparency_is_dropped_with_a_note(tmp_path: Path) -> None:
    write_images(tmp_path, ["a", "b"], ["x", "y"])
    Image.new("RGBA", (9, 9), (1, 2, 3, 4)).save(tmp_path / "a" / "x" / "0.png")
    assert load(tmp_path).notes == (f"{tmp_path.name}: dropped the transparency of 1 images",)


def break_image(root: Path) -> None:
    (root / "a" / "x" / "3.png").write_bytes(b"broken")


def cut_image(root: Path) -> None:
    path = root / "a" / "x" / "3.png"
    path.write_bytes(path.read_bytes()[:-30])


def other_size(root: Path) -> None:
    Image.new("RGB", (9, 11)).save(root / "b" / "y" / "2.png")


def deep_image(root: Path) -> None:
    Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save(root / "a" / "x" / "deep.png")


def unknown_file(root: Path) -> None:
    (root / "a" / "x" / "film.mp4").write_bytes(b"")


def stray_image(root: Path) -> None:
    Image.new("RGB", (9, 9)).save(root / "a" / "stray.png")


def nested(root: Path) -> None:
    (root / "a" / "x" / "deeper").mkdir()


def empty_client(root: Path) -> None:
    (root / "zoe").mkdir()


def empty_class(root: Path) -> None:
    (root / "a" / "ghost").mkdir()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (break_image, r"3\.png cannot be read"),
        (cut_image, r"3\.png cannot be read"),
        (other_size, r"0\.png is 9×9 pixels but .*2\.png is 9×11"),
        (deep_image, r"deep\.png has more than 8 bits"),
        (unknown_file, r"film\.mp4 is not an image"),
        (stray_image, r"stray\.png lies outside"),
        (nested, "deeper is a folder inside"),
        (empty_client, "client 'zoe' has no image"),
        (empty_class, "class 'ghost' has no training sample"),
    ],
)
def test_bad_folders_are_refused(tmp_path: Path, damage: Callable[[Path], None], says: str) -> None:
    write_images(tmp_path, ["a", "b"], ["x", "y"])
    damage(tmp_path)
    with pytest.raises(DataError, match=says) as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no images"):
        load(tmp_path)
