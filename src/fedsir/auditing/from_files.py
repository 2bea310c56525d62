"""From a folder or file to an audit's folder: what `fedsir audit` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

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
    if data.reader is None:
        origin = Origin(path, data.kind)
        result = audit(data.features, data.labels, data.clients, ids=data.ids, paths=data.paths)
    else:
        origin, result = _from_images(
            data, extractor, image_size, max_corrupt, data_dir, download=download, progress=progress
        )
    write_folder(result, out, origin, min_cell=min_cell)
    return result, origin


def _from_images(
    data: AuditData,
    extractor: str,
    image_size: int | None,
    max_corrupt: float,
    data_dir: Path | None,
    *,
    download: bool,
    progress: Progress | None,
) -> tuple[Origin, AuditResult]:
    from fedsir.auditing.extraction import extract_features

    assert data.reader is not None
    _refuse_early(data)
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
    ids = np.array([str(row) for row in kept.tolist()]) if data.ids is None else data.ids[kept]
    result = audit(
        found.features,
        data.labels[kept],
        data.clients[kept],
        ids=ids,
        paths=None if data.paths is None else data.paths[kept],
    )
    return Origin(data.path, data.kind, extractor, skipped, found.details, data.reader, kept), result


def _refuse_early(data: AuditData) -> None:
    """Refuse what an audit cannot use before a network has looked at every image."""
    for what, values in (("labels", data.labels), ("clients", data.clients)):
        distinct = {readable_name(f"{data.path}: {what}", value) for value in set(values.tolist())}
        if len(distinct) < 2:
            raise DataError(f"{data.path}: all {what} are {distinct.pop()!r}; an audit compares, so it needs two")
