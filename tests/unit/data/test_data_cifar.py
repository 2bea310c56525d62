import hashlib
import io
import os
import pickle
import struct
import tarfile
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from fedsir.data import cifar_download
from fedsir.data.cifar import load_cifar, read_files
from fedsir.data.cifar_facts import CIFAR10, CIFAR100, CIFAR100_SUPERCLASS, Checksum, Layout
from fedsir.data.cifar_pickle import read_batch
from fedsir.data.directory import data_directory
from fedsir.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3072), dtype=np.uint8)
LABELS = [3, 0, 9, 1, 1, 2]


def written(path: Path, raw: bytes) -> dict[str, Checksum]:
    path.write_bytes(raw)
    return {path.name: Checksum("md5", hashlib.md5(raw).hexdigest())}


def layout(kind: str) -> Layout:
    return Layout(kind, "some-folder", {}, {})


def python2_pickle(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Return what Python 2 wrote, opcode by opcode: text as bytes, arrays through numpy.core."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    dtype = b"cnumpy\ndtype\n(" + short(b"u1") + b"K\x00K\x01tR(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xff"
    dtype += b"J\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + short(b"b") + b"tR"
    shape = b"(K" + bytes([len(pixels)]) + b"M\x00\x0ct"  # 3072 = 0x0c00
    raw = b"T" + struct.pack("<i", pixels.nbytes) + pixels.tobytes()
    array += b"(K\x01" + shape + dtype + b"\x89" + raw + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + numbers + b"u."


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_python_and_binary_layouts_read_the_same(tmp_path: Path, protocol: int) -> None:
    records = np.concatenate([np.array(LABELS, np.uint8)[:, None], PIXELS], axis=1)
    binary = written(tmp_path / "a.bin", records[:4].tobytes()) | written(tmp_path / "b.bin", records[4:].tobytes())
    batches: dict[str, Checksum] = {}
    for name, part in [("a", slice(0, 4)), ("b", slice(4, 6))]:
        content = {"data": PIXELS[part], "labels": LABELS[part], "batch_label": "x"}
        batches |= written(tmp_path / name, pickle.dumps(content, protocol=protocol))
    images, labels = read_files(layout("binary"), tmp_path, binary, CIFAR10)
    same_images, same_labels = read_files(layout("python"), tmp_path, batches, CIFAR10)
    assert images.shape == (6, 3, 32, 32)
    assert (images == same_images).all()
    assert (images[2, 1, 0] == PIXELS[2, 1024:1056]).all()  # channel, then row, then column
    assert labels.tolist() == same_labels.tolist() == LABELS


def test_the_second_label_byte_of_cifar100_is_the_class(tmp_path: Path) -> None:
    two = np.array([[19, 99], [0, 4]], np.uint8)
    files = written(tmp_path / "train.bin", np.concatenate([two, PIXELS[:2]], axis=1).tobytes())
    assert read_files(layout("binary"), tmp_path, files, CIFAR100)[1].tolist() == [99, 4]


def test_one_file_at_a_time_is_in_memory_beside_the_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsir.data.cifar.N_IMAGES", 600)
    raw = bytes(100 * 3073)
    files: dict[str, Checksum] = {}
    for k in range(6):
        files |= written(tmp_path / f"{k}.bin", raw)
    tracemalloc.start()
    images, _ = read_files(layout("binary"), tmp_path, files, CIFAR10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(images) == 600
    assert peak < images.nbytes + 1.5 * len(raw)


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    raw = python2_pickle(PIXELS, LABELS)
    pixels, labels = read_batch(raw, "labels", "batch")
    assert (pixels == PIXELS).all()
    assert labels == LABELS
    # The imitation is a real one: the standard library reads it alike.
    loaded = pickle.loads(raw, encoding="latin1")
    assert (loaded["data"] == PIXELS).all()


def test_a_wrong_checksum_is_refused_before_unpickling(tmp_path: Path) -> None:
    files = written(tmp_path / "data_batch_1", python2_pickle(PIXELS, LABELS))
    (tmp_path / "data_batch_1").write_bytes(b"something else")
    with pytest.raises(DataError, match=r"data_batch_1 is damaged.*14 bytes"):
        read_files(layout("python"), tmp_path, files, CIFAR10)


class Trap:
    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return self.call


def test_a_pickle_that_would_run_something_is_refused_though_its_checksum_is_allowed(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    for protocol in (0, 2, 4):
        raw = pickle.dumps({"data": PIXELS, "labels": Trap(os.mkdir, str(mark))}, protocol=protocol)
        files = written(tmp_path / "batch", raw)
        with pytest.raises(DataError, match=r"names \w+\.mkdir"):
            read_files(layout("python"), tmp_path, files, CIFAR10)
    assert not mark.exists()
    pickle.loads(raw)  # the trap is a real one
    assert mark.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"data": PIXELS.astype(object), "labels": LABELS}, "'O8'"),
        ({"data": PIXELS.astype(np.float32), "labels": LABELS}, "uint8 belongs"),
        ({"data": PIXELS}, "labels"),
        ({"data": PIXELS, "labels": LABELS[:-1]}, "one label each"),
        ({"data": PIXELS[:, :100].copy(), "labels": LABELS}, "3072"),
        ({"data": PIXELS, "labels": ["0"] * 6}, "3072"),
        ([1, 2], "not a CIFAR batch"),
        ({"data": PIXELS, "labels": Trap(eval, "1+1")}, "builtins.eval"),
        ({"data": PIXELS, "labels": Trap(getattr, "", "x")}, "builtins.getattr"),
    ],
)
def test_other_pickles_are_refused(content: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_batch(pickle.dumps(content, protocol=4), "labels", "batch")


@pytest.mark.parametrize("raw", [b"", b"junk", b"\x80\x02}", python2_pickle(PIXELS, LABELS)[:-3000]])
def test_broken_pickles_are_refused(raw: bytes) -> None:
    with pytest.raises(DataError, match="batch is not a CIFAR batch"):
        read_batch(raw, "labels", "batch")


def test_missing_data_say_what_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load_cifar("cifar10", tmp_path)
    for word in ("cifar-10-batches-bin", str(tmp_path), "data_batch_1.bin", "test_batch.bin", "--download"):
        assert word in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cut_file_and_a_missing_file_are_named(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    with pytest.raises(DataError, match=r"data_batch_1\.bin cannot be read \(No such file"):
        load_cifar("cifar10", tmp_path)
    (folder / "data_batch_1.bin").write_bytes(b"\0" * 3000)
    with pytest.raises(DataError, match=r"data_batch_1\.bin.*3,000 bytes, not 30,730,000"):
        load_cifar("cifar10", tmp_path)


def archive_with(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_unpacking_writes_the_known_files_only(tmp_path: Path) -> None:
    wanted = {f"cifar-100-binary/{name}.bin": name.encode() for name in ("train", "test")}
    archive = archive_with(tmp_path / "a.tar.gz", {**wanted, "../evil": b"x", "cifar-100-binary/other": b"x"})
    target = tmp_path / "data"
    cifar_download.unpack(archive, CIFAR100.layouts[0], target)
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == set(wanted)
    assert not (tmp_path / "evil").exists()


def test_an_archive_without_the_files_leaves_no_folder(tmp_path: Path) -> None:
    archive = archive_with(tmp_path / "a.tar.gz", {"cifar-100-binary/train.bin": b"x"})
    with pytest.raises(DataError, match=r"test\.bin"):
        cifar_download.unpack(archive, CIFAR100.layouts[0], tmp_path)
    assert not (tmp_path / "cifar-100-binary").exists()


def test_a_download_that_fails_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A port nobody listens on stands for a machine without internet.
    monkeypatch.setattr(cifar_download, "HOME", "http://127.0.0.1:9")
    with pytest.raises(DataError, match=r"could not download http://127.0.0.1:9/cifar-10-binary.tar.gz") as caught:
        load_cifar("cifar10", tmp_path, download=True)
    assert "\n" not in str(caught.value)


def test_data_directory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSIR_DATA", str(tmp_path))
    assert data_directory(Path("x")) == data_directory("x") == Path("x")
    assert data_directory(None) == tmp_path
    monkeypatch.delenv("FEDSIR_DATA")
    assert data_directory(None).name == "fedsir"


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "folder"), [("cifar10", "cifar-10-batches-bin"), ("cifar100", "cifar-100-binary")])
def test_the_published_files(name: str, folder: str) -> None:
    data_dir = data_directory()
    if not (data_dir / folder).is_dir():
        pytest.skip(f"{folder}/ is not in {data_dir} (set FEDSIR_DATA)")
    source = load_cifar(name, data_dir)
    assert source.train_images.shape == (50_000, 3, 32, 32)
    assert source.test_images.shape == (10_000, 3, 32, 32)
    assert set(np.bincount(source.train_labels)) == {50_000 // source.n_classes}
    if name == "cifar10":
        assert source.class_names[source.train_labels[0]] == "frog"  # the well-known first image
        assert source.train_images[0, :, 0, 0].tolist() == [59, 62, 63]
    else:
        raw = np.fromfile(data_dir / folder / "train.bin", np.uint8).reshape(-1, 3074)
        assert (np.array(CIFAR100_SUPERCLASS)[raw[:, 1]] == raw[:, 0]).all()
        names = (data_dir / folder / "fine_label_names.txt").read_text().split()
        assert source.class_names == tuple(names)
