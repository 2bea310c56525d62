"""From a folder or file to an audit's folder: what `fedsir audit` does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.audit import audit
from fedsir.auditing.folder_writer import Origin, write_folder
from fedsir.auditing.result import MIN_CELL, AuditResult
from fedsir.auditing.sources import AuditData, read_data
from fedsir.data.naming import readable_name
from fedsir.errors import ConfigError, DataError

if TYPE_CHECKING:
    from fedsir.auditing.extraction import Progress

MAX_CORRUPT = 0.1


def audit_files(
    path: Path,
    out: Path,
    *,
    extractor: str = "resnet18",
    image_size: int | None = None,
    max_corrupt: float = MAX_CORRUPT,
    min_cell: int = MIN_CELL,
    data_dir: Path | None = None,
    download: bool = False,
    progress: Progress | None = None,
) -> tuple[AuditResult, Origin]:
    """Audit a folder or file, write the audit's folder, and return what was found and where it came from."""
    from fedsir.auditing.folder_writer import refuse_foreign

    if not 0 <= max_corrupt <= 1:
        raise ConfigError(f"max_corrupt: must be a share from 0 to 1 (given: {max_corrupt:g})")
    refuse_foreign(out)  # before hours of work
    data = read_data(path)
    if data.reader is not None:
        _refuse_early(data)
    found = prepare(data, extractor, image_size, max_corrupt, data_dir, download=download, progress=progress)
    result = audit(found.features, found.labels, found.clients, ids=found.ids, paths=found.paths)
    write_folder(result, out, found.origin, min_cell=min_cell)
    return result, found.origin


@dataclass(frozen=True, eq=False)
class Prepared:
    """Samples with features, without those whose images could not be read.

    features : (n, d)
    labels, clients, ids, paths : (n,); ids are row numbers if None, paths are None where there are none
    origin : where they came from
    network : what made the features; two of them can be compared where it is the same
    """

    features: NDArray[Any]
    labels: NDArray[Any]
    clients: NDArray[Any]
    ids: NDArray[Any] | None
    paths: NDArray[Any] | None
    origin: Origin
    network: str = "given"


def prepare(
    data: AuditData,
    extractor: str,
    image_size: int | None,
    max_corrupt: float = MAX_CORRUPT,
    data_dir: Path | None = None,
    *,
    download: bool = False,
    progress: Progress | None = None,
) -> Prepared:
    """Return features as they were given, or those that a network makes of the images."""
    if data.reader is None:
        assert data.features is not None
        origin = Origin(data.path, data.kind)
        return Prepared(data.features, data.labels, data.clients, data.ids, data.paths, origin)
    from fedsir.auditing.extraction import extract_features

    n = len(data.labels)
    found = extract_features(
        data.reader, n, extractor, image_size=image_size, data_dir=data_dir, download=download, progress=progress
    )
    names = np.array([str(row) for row in range(n)]) if data.paths is None else data.paths
    if len(found.unreadable) > max_corrupt * n:
        row, reason = next(iter(found.unreadable.items()))
        raise DataError(
            f"{data.path}: {len(found.unreadable):,} of {n:,} images cannot be read, more than --max-corrupt "
            f"{max_corrupt:g} allows; the first: {names[row]}: {reason}"
        )
    skipped: dict[str, list[tuple[str, str]]] = {}
    for row, reason in found.unreadable.items():
        skipped.setdefault(str(data.clients[row]), []).append((str(names[row]), reason))
    kept = found.kept
    return Prepared(
        found.features,
        data.labels[kept],
        data.clients[kept],
        np.array([str(row) for row in kept.tolist()]) if data.ids is None else data.ids[kept],
        None if data.paths is None else data.paths[kept],
        Origin(data.path, data.kind, extractor, skipped, found.details, data.reader, kept),
        found.network,
    )


def _refuse_early(data: AuditData) -> None:
    """Refuse what an audit cannot use before a network has looked at every image."""
    for what, values in (("labels", data.labels), ("clients", data.clients)):
        distinct = {readable_name(f"{data.path}: {what}", value) for value in set(values.tolist())}
        if len(distinct) < 2:
            raise DataError(f"{data.path}: all {what} are {distinct.pop()!r}; an audit compares, so it needs two")
