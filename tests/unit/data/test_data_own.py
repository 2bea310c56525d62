import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedsir.data import resize
from fedsir.data.source import DATASETS, Source, load_source
from fedsir.errors import DataError

N = 60
RNG = np.random.default_rng(0)
GOOD = {
    "images": RNG.integers(0, 256, (N, 10, 12, 3), dtype=np.uint8),
    "labels": np.arange(N) % 3,
    "clients": np.array([f"site-{i % 4}" for i in range(N)]),
}


def load(path: Path, seed: int = 0, image_size: int | tuple[int, int] | None = None) -> Source:
    return load_source(str(path), data_dir=Path("nowhere"), seed=seed, image_size=image_size)


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
        ({"labels": GOOD["labels"] - 1}, "from 0 to 1; they go from -1 to 1"),
        ({"labels": GOOD["labels"] + 0.5}, "'labels' must be integers"),
        ({"labels": GOOD["labels"] == 1}, "'labels' must be integers"),
        ({"labels": GOOD["labels"] * 2}, "class '1' has no training sample"),
        ({"labels": GOOD["labels"] + 10**9}, "from 0 to 59; they go from 1000000000"),
        ({"labels": np.zeros(N, np.int64)}, "two classes"),
        ({"labels": np.array([None] * N)}, "unpickled"),
        ({"images": GOOD["images"][:0]}, "no samples"),
        ({"images": GOOD["images"].astype("float32") * np.nan}, "'images' must be uint8"),
        ({"images": GOOD["images"].transpose(0, 3, 1, 2)}, "expected"),
        ({"images": GOOD["images"][:, :7]}, "at least 8×8"),
        ({"images": np.uint8(3)}, "empty"),
        ({"clients": np.array([""] * N)}, "empty name"),
        ({"clients": np.array(["a\x1b[2J", "b"] * 30)}, r"'a\\x1b\[2J' is not readable text"),
        ({"labels": np.array(["\ud800", "b"] * 30)}, r"'\\ud800' is not readable text"),
        ({"images": np.zeros((N, 10, 12, 4), np.uint8)}, "expected"),
        ({"images": np.zeros((N, 10, 0, 3), np.uint8)}, "expected"),
        ({"images": GOOD["images"].astype(np.uint16)}, "'images' must be uint8"),
        ({"clients": np.arange(N) / 2}, "'clients' must hold text"),
        ({"split": np.array(["train"] * N)}, "no sample has 'test'"),
        ({"split": np.array(["train", "test", "val"] * 20)}, "'val'"),
        ({"class_names": np.array(["a", "b"])}, "from 0 to 1; they go from 0 to 2"),
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
    for name in (".DS_Store", "desktop.ini", "class 2/Thumbs.db"):
        (tmp_path / "berlin" / name).write_text("x")
    source = load(tmp_path)
    assert source.class_names == ("class 2", "class 10")
    assert set(source.clients) == {"berlin", "são paulo"}
    assert (len(source.train_labels), len(source.test_labels)) == (16, 4)
    assert source.notes == (f"{tmp_path.name}: ignored 4 hidden, text or system files",)
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


def write_png16(path: Path, pixels: np.ndarray) -> None:
    """Write a PNG with 16 bits a channel, which Pillow cannot; pixels : (h, w, 1 or 3)."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width, channels = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {1: 0, 3: 2}[channels], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


GREEN = Image.new("RGB", (9, 9), (0, 255, 0))
REDUCED, OPAQUE = "reduced 1 images from 16 to 8 bits a channel", "dropped the transparency of 1 images"


@pytest.mark.parametrize(
    ("name", "picture", "pixel", "note"),
    [
        ("palette.png", GREEN.convert("P"), (0, 255, 0), None),
        ("palette.gif", GREEN, (0, 255, 0), None),
        ("cmyk.tif", GREEN.convert("CMYK"), (0, 255, 0), None),
        ("two.png", Image.new("1", (9, 9), 1), (255, 255, 255), None),
        ("alpha.png", Image.new("RGBA", (9, 9), (1, 2, 3, 4)), (1, 2, 3), OPAQUE),
        ("grey-alpha.png", Image.new("LA", (9, 9), (7, 0)), (7, 7, 7), OPAQUE),
        ("deep.png", np.full((9, 9, 1), 257 * 40 + 100), (40, 40, 40), REDUCED),
        ("deep.tif", Image.fromarray(np.full((9, 9), 65535, np.uint16)), (255, 255, 255), REDUCED),
        ("deep-colour.png", np.full((9, 9, 3), (256 * 9 + 255, 0, 65535)), (9, 0, 255), REDUCED),
    ],
)
def test_every_kind_of_image_becomes_bytes(
    tmp_path: Path, name: str, picture: Image.Image | np.ndarray, pixel: tuple[int, ...], note: str | None
) -> None:
    write_images(tmp_path, ["a", "b"], ["x", "y"])
    path = tmp_path / "a" / "x" / f"00-{name}"
    write_png16(path, picture) if isinstance(picture, np.ndarray) else picture.save(path)
    source = load(tmp_path)
    assert source.images[0, :, 4, 4].tolist() == list(pixel)  # the first file of all
    assert source.notes == (() if note is None else (f"{tmp_path.name}: {note}",))


def test_grey_images_of_all_depths_stay_grey(tmp_path: Path) -> None:
    write_images(tmp_path, ["a", "b"], ["x", "y"])
    for path in tmp_path.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    write_png16(tmp_path / "a" / "x" / "0.png", np.full((9, 9, 1), 65535))
    source = load(tmp_path)
    assert source.images.shape[1] == 1
    assert source.images[0].min() == 255


def test_image_size_covers_and_crops_to_the_centre(tmp_path: Path) -> None:
    write_images(tmp_path, ["a", "b"], ["x", "y"])
    stripes = np.zeros((40, 100, 3), np.uint8)
    stripes[:, 25:75] = 200  # the middle, and what antialiasing sees beside it
    Image.fromarray(stripes).save(tmp_path / "a" / "x" / "0.png")
    turned = Image.fromarray(stripes)
    exif = turned.getexif()
    exif[0x0112] = 6  # the camera was held upright
    turned.save(tmp_path / "a" / "x" / "1.jpg", exif=exif)
    assert load(tmp_path, image_size=16).images.shape == (21, 3, 16, 16)
    source = load(tmp_path, image_size=(12, 10))
    assert source.images.shape == (21, 3, 12, 10)
    assert (source.images[0] == 200).all()
    assert (np.abs(source.images[1].astype(int) - 200) < 10).all()  # JPEG
    assert load(tmp_path, image_size=(12, 10)).sha256 == source.sha256


def test_an_npz_is_resized_too_and_in_any_memory_order(tmp_path: Path) -> None:
    path = npz(tmp_path, images=np.repeat(np.repeat(GOOD["images"], 2, axis=1), 2, axis=2))
    assert load(path, image_size=8).images.shape == (N, 3, 8, 8)
    plain = load(npz(tmp_path))
    assert load(npz(tmp_path, images=np.asfortranarray(GOOD["images"]))).sha256 == plain.sha256
    # The size itself is no part of the hash, only the pixels are.
    assert load(npz(tmp_path), image_size=(10, 12)).sha256 == plain.sha256


def test_large_images_bring_the_advice_to_shrink_them(tmp_path: Path) -> None:
    path = npz(tmp_path, images=np.zeros((N, 8, 65), np.uint8))
    assert "data.image_size = 64" in load(path).notes[0]
    assert load(path, image_size=(8, 65)).notes == ()  # it was asked for


def test_images_beyond_memory_are_refused_before_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resize, "free_memory", lambda: 10**4)
    with pytest.raises(DataError, match=r"60 images of 10×12 pixels take 0\.0 GB, more .*data\.image_size"):
        load(npz(tmp_path))


def header(shape: str) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({shape}), }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text) + 1) + text + b"\n"


@pytest.mark.parametrize("array", ["images", "labels"])
@pytest.mark.parametrize(
    "shape", ["12345678, 1000, 1000,", "-1, 10, 12", f"1{'0' * 5000}, 8, 8", f"1{'0' * 400}, 8, 8"]
)
def test_a_header_that_lies_is_refused_before_memory_is_taken(tmp_path: Path, array: str, shape: str) -> None:
    path = npz(tmp_path, **{array: None})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"{array}.npy", header(shape) + bytes(100))
    with pytest.raises(DataError, match=f"'{array}' cannot be read: its header") as caught:
        load(path)
    assert len(str(caught.value)) < 400


def save(root: Path, name: str, mode: str = "RGB", size: tuple[int, int] = (9, 9)) -> None:
    Image.new(mode, size).save(root / name)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda root: (root / "a/x/3.png").write_bytes(b"broken"), r"3\.png cannot be read"),
        (lambda root: (root / "a/x/3.png").write_bytes((root / "a/x/3.png").read_bytes()[:-30]), r"3\.png cannot be"),
        (lambda root: save(root, "b/y/2.png", size=(9, 11)), r"9×9 pixels but .*2\.png is 9×11; .*data\.image_size"),
        (lambda root: save(root, "a/x/float.tif", "F"), r"float\.tif has floating-point pixels"),
        (
            lambda root: Image.fromarray(np.full((9, 9), 2**20, np.int32)).save(root / "a/x/deep.tif"),
            "more than 16 bits",
        ),
        (lambda root: (root / "a/x/film.mp4").write_bytes(b""), r"film\.mp4 is not an image"),
        (lambda root: os.mkfifo(root / "a/x/pipe.png"), r"pipe\.png is not an image"),
        (lambda root: save(root, "a/stray.png"), r"stray\.png lies outside"),
        (lambda root: (root / "a/x/deeper").mkdir(), "deeper is a folder inside"),
        (lambda root: (root / "zoe").mkdir(), "client 'zoe' has no image"),
        (lambda root: (root / "a/ghost").mkdir(), "class 'ghost' has no training sample"),
        (lambda root: (root / "a").rename(root / "\x1b[2J"), r"'\\x1b\[2J' is not readable text"),
        (lambda root: (root / "a").rename(root / "\udcff"), r"'\\udcff' is not readable text"),
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
