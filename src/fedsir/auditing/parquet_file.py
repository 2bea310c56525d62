"""A parquet file to audit: columns `label`, `client`, and `features` (lists), `f0`, `f1`, … or `image`.

`id` and `path` are used if they are there. `image` holds encoded images, as bytes or as a struct with `bytes`.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedsir.auditing.sources import PEEKED, AuditData, Unreadable, file_digest, read_image, shorter_sides
from fedsir.data.arrays import Images
from fedsir.data.resize import Size
from fedsir.errors import DataError, did_you_mean

NUMBERED = re.compile(r"f(\d+)")
AT_ONCE = 64  # images in memory
NAMES = {"label": ("label", "labels"), "client": ("client", "clients"), "id": ("id", "ids"), "path": ("path", "paths")}


def read_parquet(path: Path) -> AuditData:
    """Return the samples of a parquet file."""
    try:
        schema = pq.read_schema(path)
        found = {role: next((name for name in names if name in schema.names), None) for role, names in NAMES.items()}
        for role in ("label", "client"):
            if found[role] is None:
                suggestion = did_you_mean(role, schema.names)
                raise DataError(f"{path}: there is no column {role!r}; it has {_list(schema.names)}.{suggestion}")
        columns = {role: _texts(path, name) for role, name in found.items() if name is not None}
        numbered = sorted((int(m[1]), name) for name in schema.names if (m := NUMBERED.fullmatch(name)))
        features, reader = None, None
        if "features" in schema.names:
            features = _lists(path)
        elif numbered:
            table = pq.read_table(path, columns=[name for _, name in numbered])
            features = np.column_stack([_numbers(path, name, table[name]) for _, name in numbered])
        elif "image" in schema.names:
            reader = ParquetReader(path, schema.field("image").type)
        else:
            raise DataError(
                f"{path}: there are no columns 'features', 'f0', … or 'image'; it has {_list(schema.names)}."
            )
    except (OSError, pa.ArrowException) as problem:
        raise DataError(f"{path} is not a readable parquet file: {str(problem).partition(chr(10))[0]}") from None
    return AuditData(
        path,
        "parquet" if features is None else "features",
        columns["label"],
        columns["client"],
        columns.get("id"),
        columns.get("path"),
        features,
        reader,
    )


def _texts(path: Path, name: str) -> NDArray[Any]:
    """Return a column of names or whole numbers; what else it may be is refused later."""
    column = pq.read_table(path, columns=[name])[name]
    entries = np.empty(len(column), object)
    entries[:] = column.to_pylist()
    return entries


def _lists(path: Path) -> NDArray[Any]:
    column = pq.read_table(path, columns=["features"])["features"].combine_chunks()
    if not (
        pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type)
    ):
        raise DataError(f"{path}: 'features' must hold lists of numbers, not {column.type}")
    if column.null_count:
        raise DataError(f"{path}: 'features' lacks {column.null_count} rows; leave these samples out")
    lengths = np.unique(column.value_lengths().to_numpy(zero_copy_only=False)) if len(column) else np.array([0])
    if len(lengths) > 1:
        raise DataError(f"{path}: 'features' have from {lengths[0]} to {lengths[-1]} numbers; all need the same")
    return _numbers(path, "features", column.flatten()).reshape(len(column), int(lengths[0]))


def _numbers(path: Path, name: str, column: Any) -> NDArray[Any]:
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise DataError(f"{path}: {name!r} must hold numbers, not {column.type}")
    if column.null_count:
        raise DataError(f"{path}: {name!r} lacks {column.null_count} numbers; leave these samples out")
    numbers = np.asarray(column)
    return numbers if numbers.dtype in (np.float32, np.float64) else numbers.astype(np.float64)


class ParquetReader:
    """The column `image` of a parquet file, a few rows at a time."""

    def __init__(self, path: Path, kind: Any) -> None:
        is_struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
        if not (is_struct or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise DataError(f"{path}: 'image' must hold encoded images (bytes), not {kind}")
        self._path, self._is_struct = path, is_struct

    def images(self, size: Size) -> Iterator[Images | Unreadable]:
        notes: Counter[str] = Counter()
        for row, content in enumerate(self._contents()):
            if content is None:
                yield Unreadable("there is no image")
            else:
                yield read_image(self._path.with_name(f"row {row}"), size, notes, content)

    def chosen(self, rows: Sequence[int]) -> Iterator[tuple[int, Images]]:
        notes: Counter[str] = Counter()
        wanted = set(rows)
        for row, content in enumerate(self._contents()):
            if row in wanted and content is not None:
                image = read_image(self._path, None, notes, content)
                if not isinstance(image, Unreadable):
                    yield row, image

    def sides(self) -> list[int]:
        some = itertools.islice(self._contents(), PEEKED)
        return shorter_sides((self._path, content or b"") for content in some)

    def digest(self) -> str:
        return file_digest(self._path)

    def _contents(self) -> Iterator[bytes | None]:
        try:
            with pq.ParquetFile(self._path) as file:
                for batch in file.iter_batches(AT_ONCE, columns=["image"]):
                    for entry in batch.column(0).to_pylist():
                        yield entry["bytes"] if self._is_struct and entry is not None else entry
        except (OSError, pa.ArrowException) as problem:
            reason = str(problem).partition("\n")[0]
            raise DataError(f"{self._path} is not a readable parquet file: {reason}") from None


def _list(names: list[str]) -> str:
    return ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
