"""Features of images: one forward pass of a pretrained network, kept on the disk for the next audit."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.sources import ImageReader, Unreadable
from fedsir.data.arrays import Images
from fedsir.data.cifar_facts import IMAGENET_STATISTICS
from fedsir.data.directory import data_directory
from fedsir.data.npy import open_array
from fedsir.data.resize import Size
from fedsir.errors import ConfigError, DataError

if TYPE_CHECKING:
    from torch import nn

PRETRAINED = "resnet18"
SMALLEST_SIDE, LARGEST_SIDE = 32, 224  # pixels; what ResNet-18 can make something of, and what it was trained on
Progress = Callable[[int, int], None]
"""Told how many of how many images are done."""


@dataclass(frozen=True, eq=False)
class Extracted:
    """Features of the images that could be read.

    features : (m, d) float32
    kept : (m,) rows of these images
    unreadable : row → why it could not be read
    details : size, weights, and where the features are kept
    network : hash of the network and of the size: features of another one cannot be compared with these
    """

    features: NDArray[np.float32]
    kept: NDArray[np.int64]
    unreadable: dict[int, str]
    details: dict[str, Any]
    network: str


def extract_features(
    reader: ImageReader,
    n: int,
    extractor: str = PRETRAINED,
    *,
    image_size: int | None = None,
    data_dir: Path | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> Extracted:
    """Return features of n images by a network; the same images and network are looked up, not computed again.

    Parameters
    ----------
    extractor : "resnet18" with ImageNet weights, or MODULE:CLASS of your own (docs/python.md says what it must have)
    image_size : side to which every image is brought; by default about that of the images, from 32 to 224
    """
    from fedsir.models.weights import weights_of, weights_sha256

    where = data_directory(data_dir)
    side = image_size or usual_side(reader.sides())
    if side < 8:
        raise ConfigError(f"image_size: must be at least 8 (given: {side})")
    module, source = _network(extractor, side, where, download=download)
    details = {"image_size": side, "weights": source}
    network = [extractor, side, weights_sha256(weights_of(module))]
    asked = [reader.digest(), *network, n]
    kept_at = where / "features" / f"{_sha256(asked)[:32]}.npz"
    found = _stored(kept_at, n)
    if found is None:
        found = _computed(reader, n, module, (side, side), progress)
        _store(kept_at, *found)
    features, kept, unreadable = found
    return Extracted(features, kept, unreadable, {**details, "kept_at": str(kept_at)}, _sha256(network))


def _sha256(words: list[Any]) -> str:
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()


def usual_side(sides: Sequence[int]) -> int:
    """Return the side to which images are brought whose shorter sides are these, in pixels."""
    middle = int(np.median(sides)) if sides else SMALLEST_SIDE
    return min(max(middle, SMALLEST_SIDE), LARGEST_SIDE)


def _network(extractor: str, side: int, where: Path, *, download: bool) -> tuple[nn.Module, dict[str, Any]]:
    """Return a network without a classifier to speak of, and where its weights are from."""
    from pydantic import ValidationError

    from fedsir.models.build import build_model, training_model
    from fedsir.models.config import ModelConfig, is_dotted
    from fedsir.models.weights import load_pretrained
    from fedsir.randomness import KeyedRandom

    if extractor != PRETRAINED and not is_dotted(extractor):
        raise ConfigError(f"features: give {PRETRAINED!r} or MODULE:CLASS, not {extractor!r}")
    try:
        config = ModelConfig(name=extractor)
    except ValidationError as problem:
        raise ConfigError(f"features: {problem.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    stock = build_model(
        config, n_classes=2, in_channels=3, random=KeyedRandom(0, ("audit", "features")), image_size=(side, side)
    )
    source: dict[str, Any] = {"kind": "own model"}
    if extractor == PRETRAINED:
        try:
            source = dict(load_pretrained(stock, "imagenet", where, download=download))
        except DataError as problem:
            raise _without_training_advice(problem, where) from None
    return training_model(stock, extractor, (side, side)).eval(), source


def _without_training_advice(problem: DataError, where: Path) -> DataError:
    from fedsir.models.weights import OFFICIAL_FILE, OTHER_FILE

    if "no ImageNet weights" not in str(problem):
        return problem
    return DataError(
        f"no ImageNet weights in {where}: --download fetches {OFFICIAL_FILE}; or put it or {OTHER_FILE} there, or give "
        "features that you have already"
    )


def _computed(
    reader: ImageReader, n: int, module: nn.Module, size: Size, progress: Progress | None
) -> tuple[NDArray[np.float32], NDArray[np.int64], dict[int, str]]:
    import torch

    from fedsir.data.augment import normalise
    from fedsir.data.preprocessing import images_at_once

    at_once = images_at_once(torch.empty((1, 3, *size)))
    parts: list[NDArray[np.float32]] = []
    kept: list[int] = []
    unreadable: dict[int, str] = {}
    with torch.inference_mode():
        for rows, batch in _batches(reader.images(size), at_once, unreadable):
            pixels = torch.from_numpy(np.ascontiguousarray(np.stack(batch).transpose(0, 3, 1, 2)))
            parts.append(module.features(normalise(pixels, *IMAGENET_STATISTICS)).float().numpy())  # type: ignore[operator]
            kept += rows
            if progress is not None:
                progress(rows[-1] + 1, n)
    if not kept:
        raise DataError(f"none of the {n:,} images can be read; the first: {unreadable[0]}")
    return np.concatenate(parts), np.array(kept, np.int64), unreadable


def _batches(
    images: Iterator[Images | Unreadable], at_once: int, unreadable: dict[int, str]
) -> Iterator[tuple[list[int], list[Images]]]:
    """Yield rows and images, some at a time; what cannot be read goes into `unreadable`."""
    rows: list[int] = []
    batch: list[Images] = []
    for row, image in enumerate(images):
        if isinstance(image, Unreadable):
            unreadable[row] = image.reason
            continue
        rows.append(row)
        batch.append(image)
        if len(rows) == at_once:
            yield rows, batch
            rows, batch = [], []
    if rows:
        yield rows, batch


def _store(path: Path, features: NDArray[np.float32], kept: NDArray[np.int64], unreadable: dict[int, str]) -> None:
    """Keep features for the next audit; a disk that takes none is no reason to stop."""
    import io

    from fedsir.auditing.folder_writer import write_whole

    content = io.BytesIO()
    rows = np.array(list(unreadable), np.int64)
    np.savez(content, features=features, kept=kept, rows=rows, reasons=np.array(list(unreadable.values()), str))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content.getvalue())
    except OSError as problem:
        raise DataError(
            f"features cannot be kept in {path.parent}: {problem.strerror}; name another folder with --data-dir"
        ) from None


def _stored(path: Path, n: int) -> tuple[NDArray[np.float32], NDArray[np.int64], dict[int, str]] | None:
    """Return kept features; None if there are none, or if the file is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = {}
            for name in ("features", "kept", "rows", "reasons"):
                with archive.open(f"{name}.npy") as stream:
                    arrays[name] = open_array(stream, archive.getinfo(f"{name}.npy").file_size).read()
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    features, kept = arrays["features"], arrays["kept"]
    is_whole = features.ndim == 2 and len(features) == len(kept) and len(kept) + len(arrays["rows"]) == n
    if not is_whole or features.dtype != np.float32:
        return None
    return features, kept, dict(zip(arrays["rows"].tolist(), arrays["reasons"].tolist(), strict=True))
