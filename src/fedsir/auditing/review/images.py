"""The picture of a sample, from the data that were audited: files below a folder, or rows of an npz or parquet file.

Only samples of the review are asked for, by their place in its list. A path from the audit's tables must lie below the
data's folder. What a browser gets is always a picture that was decoded and encoded here, never a file as it lies there.
"""

from __future__ import annotations

import io
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from fedsir.data.npy import open_array
from fedsir.errors import DataError

LONGEST_SIDE = 4096  # pixels of a picture in a browser
THUMBNAIL_SIDE = 112
DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, KeyError, MemoryError, Image.DecompressionBombError)
CHANGED = (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)  # since the audit


class NoPicture(DataError):
    """A sample's picture cannot be shown; the message says why."""


class SampleImages(Protocol):
    """Where pictures come from."""

    has_any: bool
    """Whether it is worth asking."""

    def picture(self, place: int, longest: int) -> Image.Image:
        """Return the picture of the sample at a place in the review, no side longer than that, or raise `NoPicture`."""


class WithoutImages:
    """An audit of features has nothing to look at; nor has one whose data are gone: then every sample says so."""

    def __init__(self, problem: str = "") -> None:
        self.has_any = problem != ""
        self._problem = problem or "This audit was made from features: it knows no images."

    def picture(self, place: int, longest: int) -> Image.Image:
        """Say why there is none."""
        del place, longest
        raise NoPicture(self._problem)


class FolderImages:
    """Image files below a folder."""

    has_any = True

    def __init__(self, root: Path, paths: Sequence[str]) -> None:
        self._root, self._paths = root, paths

    def picture(self, place: int, longest: int) -> Image.Image:
        """Return the picture, upright, of its first frame."""
        path = self._paths[place]
        if not is_below(path):
            raise NoPicture(f"{path!r} does not lie in the data's folder, so it is not shown.")
        file = self._root / path
        if not file.exists():
            raise NoPicture(
                f"The image is missing: there is no {path} in {self._root} any more. --data names a new place."
            )
        if not file.is_file():  # opening a pipe would wait for ever
            raise NoPicture(f"The image cannot be shown: {path} is not a file.")
        try:
            with Image.open(file) as image:
                image.draft(None, (longest, longest))
                return upright(image, longest)
        except UnidentifiedImageError:
            raise NoPicture(f"The image is damaged: {path} is not an image that can be read.") from None
        except UNREADABLE as problem:
            raise NoPicture(f"The image is damaged: {path} cannot be read ({problem}).") from None


class NpzImages:
    """Rows of the array ``images`` of an npz file; those that the review needs are copied to a nameless file."""

    has_any = True

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        self._rows = _rows_of_npz(path, ids)

    def picture(self, place: int, longest: int) -> Image.Image:
        """Return the picture of a row."""
        pixels = np.asarray(self._rows[place])
        return upright(Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels), longest)


class ParquetImages:
    """Encoded images in the column ``image`` of a parquet file; those that are needed go to a nameless file."""

    has_any = True

    def __init__(self, path: Path, ids: Sequence[str]) -> None:
        # It lives as long as the review
        self._spool = tempfile.TemporaryFile()  # noqa: SIM115
        self._lock = threading.Lock()
        self._extent = _copy_from_parquet(path, ids, self._spool)

    def picture(self, place: int, longest: int) -> Image.Image:
        """Return the picture of a row, upright."""
        start, length = self._extent[place]
        with self._lock:
            self._spool.seek(start)
            content = self._spool.read(length)
        try:
            with Image.open(io.BytesIO(content)) as image:
                image.draft(None, (longest, longest))
                return upright(image, longest)
        except UNREADABLE as problem:
            raise NoPicture(f"The image is damaged: it cannot be read ({problem}).") from None


def images_of(
    audit: Mapping[str, Any], samples: Sequence[tuple[str, str]], moved_to: Path | None = None
) -> SampleImages:
    """Return where the pictures of samples (id, path) come from, by what audit.json says about the data.

    moved_to : where the data lie now, if not there any more
    """
    data = audit.get("data") or {}
    path, kind = data.get("path") if moved_to is None else str(moved_to), data.get("kind")
    if not isinstance(path, str) or not samples:
        return WithoutImages()
    if kind in ("npz", "parquet"):
        reader = NpzImages if kind == "npz" else ParquetImages
        try:
            return reader(Path(path), [sample for sample, _ in samples])
        except CHANGED as problem:
            return WithoutImages(f"The images cannot be read from {path} ({problem}).")
    if any(place for _, place in samples):
        root = Path(path) if kind == "folder" else Path(path).parent
        return FolderImages(root, [place for _, place in samples])
    return WithoutImages()


def is_below(path: str) -> bool:
    """Whether a path from a table stays inside the folder that it is relative to."""
    parts = PurePosixPath(path)
    is_odd = "\0" in path or "\\" in path or ":" in path.partition("/")[0]  # Windows would read more into these
    return path != "" and not parts.is_absolute() and ".." not in parts.parts and not is_odd


def upright(image: Image.Image, longest: int) -> Image.Image:
    """Return an image that browsers can show: turned as the camera says, 8 bits, no larger than asked."""
    turned = ImageOps.exif_transpose(image)
    if turned.mode in DEEP_MODES:  # a dark X-ray shows all it has: its own darkest to its own brightest
        deep = np.asarray(turned, np.float64)
        low, high = float(np.nanmin(deep)), float(np.nanmax(deep))
        turned = Image.fromarray(np.nan_to_num((deep - low) * (255 / max(high - low, 1e-12))).astype(np.uint8))
    elif turned.has_transparency_data:
        turned = turned.convert("RGBA")
    else:
        turned = turned.convert("L" if turned.mode in ("1", "L") else "RGB")
    if max(turned.size) > longest:
        turned.thumbnail((longest, longest))
    turned.format = image.format
    return turned


_DECODING = threading.BoundedSemaphore(
    2
)  # pictures at a time: a large photo takes a hundred megabytes while it is read


def encoded(images: SampleImages, place: int, longest: int) -> tuple[str, bytes]:
    """Return the media type and the bytes of a sample's picture for a browser."""
    with _DECODING:
        image = images.picture(place, longest)
        is_photo = image.format in ("JPEG", "MPO", "WEBP") and image.mode in ("L", "RGB")
        content = io.BytesIO()
        if is_photo:
            image.save(content, "JPEG", quality=92, subsampling=0)
        else:
            image.save(content, "PNG", compress_level=1)
        return f"image/{'jpeg' if is_photo else 'png'}", content.getvalue()


def _rows_of_npz(path: Path, ids: Sequence[str]) -> NDArray[np.uint8]:
    """Return the images of these samples (n, h, w, channels), from a file that is read once, piece by piece."""
    with zipfile.ZipFile(path) as archive:
        names: Sequence[Any] | None = None
        if "ids.npy" in archive.namelist():
            with archive.open("ids.npy") as stream:
                names = open_array(stream, archive.getinfo("ids.npy").file_size).read().tolist()
        place_of = _places(ids, names)
        with archive.open("images.npy") as stream:
            stored = open_array(stream, archive.getinfo("images.npy").file_size)
            if stored.dtype != np.uint8 or len(stored.shape) not in (3, 4):
                raise ValueError("'images' has changed since the audit")
            form = (*stored.shape[1:], 1) if len(stored.shape) == 3 else stored.shape[1:]
            # It lives as long as the map of it
            spool = tempfile.TemporaryFile()  # noqa: SIM115
            rows = np.memmap(spool, np.uint8, "w+", shape=(len(ids), *form))
            start = n_found = 0
            for piece in stored.pieces():
                for row in range(start, start + len(piece)):
                    if (place := place_of.get(row)) is not None:
                        rows[place] = piece[row - start].reshape(form)
                        n_found += 1
                start += len(piece)
    _refuse_missing(n_found, len(ids))
    return rows


def _copy_from_parquet(path: Path, ids: Sequence[str], spool: IO[bytes]) -> dict[int, tuple[int, int]]:
    """Copy the encoded images of these samples and return where each begins and how long it is, by place."""
    import pyarrow.parquet as pq

    extent: dict[int, tuple[int, int]] = {}
    with pq.ParquetFile(path) as file:
        column = next((name for name in ("id", "ids") if name in file.schema_arrow.names), None)
        names = None if column is None else file.read([column])[column].to_pylist()
        place_of = _places(ids, names)
        row = 0
        for batch in file.iter_batches(64, columns=["image"]):
            for entry in batch.column(0):
                if (place := place_of.get(row)) is not None:
                    content = entry.as_py()
                    content = content.get("bytes") if isinstance(content, dict) else content
                    extent[place] = spool.tell(), spool.write(content or b"")
                row += 1
    _refuse_missing(len(extent), len(ids))
    return extent


def _places(ids: Sequence[str], names: Sequence[Any] | None) -> dict[int, int]:
    """Return the place in the review by row of the file: an id is what the file calls the row, else its number."""
    row_of = None if names is None else {str(name): row for row, name in enumerate(names)}
    try:
        return {(int(name) if row_of is None else row_of[name]): place for place, name in enumerate(ids)}
    except (KeyError, ValueError):
        raise ValueError("its ids are not those of the audit") from None


def _refuse_missing(n_found: int, n_wanted: int) -> None:
    if n_found < n_wanted:
        raise ValueError("it has fewer images than at the time of the audit")
