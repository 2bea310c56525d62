"""A data set as arrays, whatever it was read from."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsir.data.arrays import fingerprint
from fedsir.data.preprocessing import Preprocessing
from fedsir.data.resize import Size, height_and_width
from fedsir.errors import DataError, did_you_mean

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedsir.data.arrays import Images, Index, Labels, Names

SMALLEST_SIDE = 8  # pixels; below this the convolutions of every model here see nothing but padding
SMALLEST_STD = 1e-3  # of pixels in [0, 1]: constant images must not divide by zero
COUNTED_AT_ONCE = 2**20  # pixels; counting takes eight bytes for each


@dataclass(frozen=True)
class DatasetInfo:
    """What a list of data sets says about one of them."""

    description: str
    n_classes: int
    image_shape: str
    how_to_get: str


DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        "handwritten digits, 1,797 images; trains in seconds", 10, "8×8 grey", "comes with scikit-learn"
    ),
    "cifar10": DatasetInfo(
        "small photographs, 50,000 for training and 10,000 for testing",
        10,
        "32×32 colour",
        "cifar-10-batches-bin/ or cifar-10-batches-py/ in the data directory, or --download",
    ),
    "cifar100": DatasetInfo(
        "small photographs of a hundred things, 50,000 for training and 10,000 for testing",
        100,
        "32×32 colour",
        "cifar-100-binary/ or cifar-100-python/ in the data directory, or --download",
    ),
}


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Source:
    """A data set with a training and a test part; nothing in it is random but the held-out fifth.

    All images are in one array, which does not depend on the seed: runs that hold out other samples can share it.

    Attributes
    ----------
    name : short name for reports
    images : (m, channels, height, width) uint8, of both parts, in the order in which they were read
    train_rows : (n,) rows of ``images``, ascending
    train_labels : (n,) int64, in 0 … n_classes-1, every class present
    test_rows, test_labels : the same for the test part
    class_names : one name per class
    clients : (n,) name of the client that owns each training sample; None if nobody does yet
    preprocessing : how the images are normalised and augmented
    images_sha256 : over ``images``
    sha256 : over arrays and names
    sample_names : what the user knows each training sample by: its file, or its row; None for public data
    notes : what was left out or changed while reading, for the user to see
    is_benchmark : the labels count as true, so that without added noise everybody is known to be clean
    confused_with : per class, the class that asymmetric noise turns it into (itself: never confused)
    """

    name: str
    images: Images
    train_rows: Index
    train_labels: Labels
    test_rows: Index
    test_labels: Labels
    class_names: tuple[str, ...]
    clients: Names | None
    preprocessing: Preprocessing
    images_sha256: str
    sha256: str
    sample_names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    is_benchmark: bool = False
    confused_with: tuple[int, ...] | None = None

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def train_images(self) -> Images:
        """A copy of the training images, (n, channels, height, width)."""
        return self.images[self.train_rows]

    @property
    def test_images(self) -> Images:
        """A copy of the test images."""
        return self.images[self.test_rows]


def pixel_statistics(images: Images, rows: Index) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation per channel of some rows of (m, channels, h, w), scaled to [0, 1]."""
    levels = np.arange(256) / 255
    # 256 counts give the exact moments, piece by piece, without a copy of all the images.
    counts = np.zeros((images.shape[1], 256), np.int64)
    step = max(1, COUNTED_AT_ONCE // (images.shape[2] * images.shape[3]))
    for start in range(0, len(rows), step):
        some = images[rows[start : start + step]]
        counts += [np.bincount(some[:, channel].reshape(-1), minlength=256) for channel in range(some.shape[1])]
    means, stds = [], []
    for count in counts:
        share = count / count.sum()
        mean = float(share @ levels)
        means.append(mean)
        stds.append(max(float(np.sqrt(share @ (levels - mean) ** 2)), SMALLEST_STD))
    return tuple(means), tuple(stds)


def make_source(
    name: str,
    images: Images,
    labels: Labels,
    class_names: tuple[str, ...],
    *,
    is_test: npt.NDArray[np.bool_],
    flip: bool,
    crop_padding: int,
    statistics: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
    clients: Names | None = None,
    sample_names: tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    is_benchmark: bool = False,
    confused_with: tuple[int, ...] | None = None,
) -> Source:
    """Return a checked `Source`; mean and std are those of the training images unless given.

    Parameters
    ----------
    images : (m, channels, height, width) uint8, of the training and the test part
    labels, is_test, clients, sample_names : one entry per image
    """
    train_rows, test_rows = np.flatnonzero(~is_test), np.flatnonzero(is_test)
    labels = labels.astype(np.int64)
    train_labels, test_labels = labels[train_rows], labels[test_rows]
    owners = None if clients is None else clients[train_rows]
    names = None if sample_names is None else tuple(sample_names[i] for i in train_rows)
    if len(train_labels) == 0 or len(test_labels) == 0:
        part = "training" if len(train_labels) == 0 else "test"
        raise DataError(f"{name}: there are no {part} samples")
    height, width = images.shape[2:]
    if min(height, width) < SMALLEST_SIDE:
        smallest = f"{SMALLEST_SIDE}×{SMALLEST_SIDE}"
        raise DataError(f"{name}: images are {height}×{width} pixels; at least {smallest} are needed")
    if len(class_names) < 2:
        raise DataError(f"{name}: all samples have the same label; at least two classes are needed")
    per_class = np.bincount(train_labels, minlength=len(class_names))
    if per_class.min() == 0:
        missing = class_names[int(per_class.argmin())]
        raise DataError(f"{name}: class {missing!r} has no training sample; add some or drop the class")
    mean, std = statistics or pixel_statistics(images, train_rows)
    images = np.ascontiguousarray(images)
    images_sha256 = fingerprint(images=images)
    return Source(
        name=name,
        images=images,
        train_rows=train_rows,
        train_labels=train_labels,
        test_rows=test_rows,
        test_labels=test_labels,
        class_names=class_names,
        clients=owners,
        preprocessing=Preprocessing(mean, std, flip, crop_padding),
        images_sha256=images_sha256,
        sha256=fingerprint(
            images=(images_sha256,),
            train_rows=train_rows,
            train_labels=train_labels,
            test_rows=test_rows,
            test_labels=test_labels,
            class_names=class_names,
            clients=() if owners is None else tuple(owners.tolist()),
            sample_names=names or (),
        ),
        sample_names=names,
        notes=notes,
        is_benchmark=is_benchmark,
        confused_with=confused_with,
    )


def peek_image_size(dataset: str) -> Size | None:
    """Return height and width of a data set's images without reading them; None where loading will find a fault."""
    if dataset in DATASETS:
        return (8, 8) if dataset == "digits" else (32, 32)
    path = Path(dataset).expanduser()
    try:
        if path.is_dir():
            from fedsir.data.own_folder import peek_folder

            return peek_folder(path)
        from fedsir.data.own_npz import peek_npz

        return peek_npz(path)
    except (OSError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error):
        return None


def load_source(
    dataset: str, *, data_dir: Path, seed: int, download: bool = False, image_size: int | Size | None = None
) -> Source:
    """Return the data set called ``dataset``, or the one in the folder or npz file of that path.

    Parameters
    ----------
    dataset : a key of `DATASETS`, or a path
    data_dir : where published data sets lie
    seed : keys which samples are held out for testing, where the data do not say
    download : fetch a published data set into ``data_dir`` if it is not there
    image_size : side, or (height, width), that own images are brought to
    """
    # Each reader is imported when it is wanted: scikit-learn and Pillow take a while to load.
    if dataset == "digits":
        from fedsir.data.digits import load_digits

        return load_digits(seed)
    if dataset in ("cifar10", "cifar100"):
        from fedsir.data.cifar import load_cifar

        return load_cifar(dataset, data_dir, download=download)
    path, size = Path(dataset).expanduser(), height_and_width(image_size)
    if path.is_dir():
        from fedsir.data.own_folder import load_folder

        return load_folder(path, seed, size)
    if path.is_file():
        from fedsir.data.own_npz import load_npz

        return load_npz(path, seed, size)
    known = ", ".join(DATASETS)
    raise DataError(
        f"unknown dataset {dataset!r}: it is neither one of {known} nor a folder or npz file that exists."
        + did_you_mean(dataset, DATASETS)
    )
