"""CIFAR-10 and CIFAR-100 from the archives as published, checked before anything in them is used."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from fedsir.data.cifar_facts import CIFAR, HOME, IMAGENET_STATISTICS, N_IMAGES, N_TRAIN, Checksum, Cifar, Layout
from fedsir.data.cifar_pickle import read_batch
from fedsir.data.source import Source, make_source
from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fedsir.data.arrays import Images, Labels


def load_cifar(name: str, data_dir: Path, *, download: bool = False) -> Source:
    """Return ``cifar10`` or ``cifar100`` from the first published layout found in ``data_dir``."""
    cifar = CIFAR[name]
    layout = _find_layout(cifar, data_dir)
    if layout is None and download:
        from fedsir.data.cifar_download import download_cifar

        download_cifar(cifar, data_dir)
        layout = cifar.layouts[0]
    if layout is None:
        raise DataError(_how_to_get(name, cifar, data_dir))
    images, labels = read_files(layout, data_dir / layout.folder, {**layout.train, **layout.test}, cifar)
    return make_source(
        name,
        images,
        labels,
        cifar.class_names,
        is_test=np.arange(len(labels)) >= N_TRAIN,
        flip=True,
        crop_padding=4,
        statistics=IMAGENET_STATISTICS,
        is_benchmark=True,
        confused_with=cifar.confused_with,
    )


def read_files(layout: Layout, folder: Path, checksums: Mapping[str, Checksum], cifar: Cifar) -> tuple[Images, Labels]:
    """Return images (n, 3, 32, 32) and labels (n,) of some files of a layout, in order.

    A file is read only if its checksum is the one in ``checksums``, which names the files.
    """
    images, labels = np.empty((N_IMAGES, 3072), np.uint8), np.empty(N_IMAGES, np.int64)
    n = 0
    for file, checksum in checksums.items():
        n += _read_into(images[n:], labels[n:], layout, folder / file, checksum, cifar)
    return images[:n].reshape(-1, 3, 32, 32), labels[:n]


def _read_into(images: Images, labels: Labels, layout: Layout, path: Path, checksum: Checksum, cifar: Cifar) -> int:
    """Fill images (m, 3072) and labels (m,) from the front with those of one file; return how many it has."""
    raw = _checked_bytes(path, checksum)
    classes: Images | list[int]
    if layout.kind == "binary":
        records = np.frombuffer(raw, np.uint8).reshape(-1, cifar.label_bytes + 3072)
        pixels, classes = records[:, cifar.label_bytes :], records[:, cifar.label_bytes - 1]
    else:
        pixels, classes = read_batch(raw, cifar.label_key, path)
    n = len(pixels)
    images[:n], labels[:n] = pixels, classes
    return n


def _checked_bytes(path: Path, checksum: Checksum) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as problem:
        raise DataError(f"{path} cannot be read ({problem.strerror}); unpack the whole archive again") from None
    found = hashlib.new(checksum.algorithm, raw, usedforsecurity=False).hexdigest()
    if found != checksum.digest:
        size = "" if checksum.size is None else f", not {checksum.size:,}"
        raise DataError(
            f"{path} is damaged or not the published file: it has {len(raw):,} bytes{size}, and "
            f"{checksum.algorithm} {found[:12]}… instead of {checksum.digest[:12]}…; "
            "delete the folder and get the archive again"
        )
    return raw


def _find_layout(cifar: Cifar, data_dir: Path) -> Layout | None:
    for layout in cifar.layouts:
        if (data_dir / layout.folder).is_dir():
            return layout
    return None


def _how_to_get(name: str, cifar: Cifar, data_dir: Path) -> str:
    folders = " or ".join(f"{layout.folder}/" for layout in cifar.layouts)
    files = ", ".join([*cifar.layouts[0].train, *cifar.layouts[0].test])
    return (
        f"{name} is not in the data directory {data_dir}: it has no folder {folders}. "
        f"Unpack {HOME}/{cifar.archive} there (giving {cifar.layouts[0].folder}/ with {files}), "
        "name another directory with --data-dir or FEDSIR_DATA, or let --download fetch it"
    )
