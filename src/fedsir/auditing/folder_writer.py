"""Write an audit's folder: whole files or none, and never over anybody else's."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fedsir
from fedsir.auditing.folder import MARK, SAMPLE_COLUMNS, SITES, AuditFolderError, folder_names
from fedsir.auditing.result import MIN_CELL, AuditResult
from fedsir.auditing.sharing import Shared, share
from fedsir.auditing.sources import ImageReader
from fedsir.auditing.table import Table
from fedsir.errors import ConfigError
from fedsir.runs.run_folder import check_name

CLIENT_COLUMNS = (
    "client",
    "samples",
    "classes",
    "verdict",
    "reason",
    "evidence",
    "noise_rate",
    "noise_rate_low",
    "noise_rate_high",
    "probability_noisy",
    "suspicious",
)
DIGITS = 4  # of a rate or a score in a CSV file


@dataclass(frozen=True)
class Origin:
    """Where the audited samples came from.

    data : file or folder; None for arrays in memory
    kind : folder, npz, parquet or features; sites where others have the samples
    extractor : what made features of images; "given" if they came as they are
    skipped : client → (path, reason) of images that could not be read
    details : more about features: weights, image size
    reader, rows : the images, and which of them each sample is; None without images
    """

    data: Path | None = None
    kind: str = "features"
    extractor: str = "given"
    skipped: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)
    reader: ImageReader | None = None
    rows: NDArray[np.int64] | None = None

    @property
    def name(self) -> str:
        """What the data are called where their path is nobody's business."""
        if self.data is None:
            return self.kind if self.kind == SITES else "arrays"
        return self.data.resolve().name


ARRAYS = Origin()


def write_folder(result: AuditResult, path: Path, origin: Origin = ARRAYS, *, min_cell: int = MIN_CELL) -> Path:
    """Write every file of an audit and return the folder; audit.json comes last and says that all are there.

    A folder of an earlier audit is written anew. What people decided and applied there stays.
    """
    shared = share(result, checked_min_cell(min_cell))
    writer = _Writer(path)
    with _usable(path):
        writer.claim()
        names = [str(client) for client in result.clients["client"].tolist()]
        folders = folder_names([*names, *(client for client in origin.skipped if client not in names)])
        writer.forget(set(folders.values()))
        for client, name in zip(result.clients["client"].tolist(), names, strict=True):
            writer.samples(f"clients/{folders[name]}", result.of_client(client))
        for client, left_out in origin.skipped.items():
            rows = [{"path": skipped, "reason": reason} for skipped, reason in left_out]
            writer.csv(f"clients/{folders[client]}/skipped.csv", ("path", "reason"), rows)
        _write_own_pages(writer, result, origin, folders)
        _write_shared(writer, shared, origin, folders, {name: folders[name] for name in names})
    return path


def write_shared_folder(shared: Shared, path: Path, origin: Origin) -> Path:
    """Write what may be shared of an audit, where that is all there is, and return the folder."""
    writer = _Writer(path)
    with _usable(path):
        writer.claim()
        writer.forget(set())
        _write_shared(writer, shared, origin, {}, {})
    return path


def checked_min_cell(min_cell: int) -> int:
    """Refuse a smallest count below one."""
    if min_cell < 1:
        raise ConfigError(f"min_cell: must be at least 1 (given: {min_cell})")
    return min_cell


def write_page(result: AuditResult, path: Path, origin: Origin, *, min_cell: int) -> Path:
    """Write the shared page alone and return its path."""
    from fedsir.auditing.pages import shared_page

    content = shared_page(share(result, min_cell), origin, {}, _now()).encode()
    with _usable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, content)
    return path


def _write_own_pages(writer: _Writer, result: AuditResult, origin: Origin, folders: Mapping[str, str]) -> None:
    from fedsir.auditing.pages import own_page, thumbnails

    pictures = thumbnails(result, origin)
    for row in result.clients.rows():
        page = own_page(result, origin, row, pictures, _now())
        writer.write(f"clients/{folders[str(row['client'])]}/report.html", page.encode())


def _write_shared(
    writer: _Writer, shared: Shared, origin: Origin, folders: dict[str, str], with_page: Mapping[str, str]
) -> None:
    """Write the files that may be shared, and audit.json last; `with_page` are the folders of clients' pages."""
    from fedsir.auditing.pages import shared_page

    writer.csv("clients.csv", CLIENT_COLUMNS, shared.clients)
    writer.csv("confusion.csv", ("client", "given", "suggested", "count"), shared.confusion)
    writer.json("summary.json", shared.summary)
    writer.write("report.html", shared_page(shared, origin, with_page, _now()).encode())
    writer.json("audit.json", _about(shared, origin, folders))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _about(shared: Shared, origin: Origin, folders: dict[str, str]) -> dict[str, Any]:
    return {
        "fedsir": fedsir.__version__,
        "data": {"path": None if origin.data is None else str(origin.data.resolve()), "kind": origin.kind},
        "features": {"name": origin.extractor, "dimension": shared.n_features, **origin.details},
        "class_names": [str(name) for name in shared.class_names],
        "settings": {**shared.settings, "min_cell": shared.min_cell},
        "created": _now(),
        "skipped": {client: len(left_out) for client, left_out in origin.skipped.items()},
        "folders": folders,
    }


def refuse_foreign(path: Path) -> None:
    """Raise an error if a folder holds something else than an audit."""
    check_name(path)
    if path.exists() and not path.is_dir():
        raise AuditFolderError(f"{path} is a file: -o must name a folder.")
    with _usable(path):
        found = sorted(entry.name for entry in path.iterdir()) if path.exists() else []
    if found and not {MARK, "audit.json"} & set(found):
        raise AuditFolderError(f"{path} is not empty and no audit's (it holds {found[0]!r}): choose another folder.")


class _Writer:
    """Writes below one folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def claim(self) -> None:
        """Make the folder, or make sure that it is an audit's; from here on it has no audit until all is written."""
        refuse_foreign(self.root)
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / MARK).touch()
        (self.root / "audit.json").unlink(missing_ok=True)

    def forget(self, folders: set[str]) -> None:
        """Remove what an earlier audit wrote about clients; decisions and applied labels stay."""
        made = ("samples.csv", "samples.parquet", "skipped.csv", "report.html")
        for folder in self.root.glob("clients/*"):
            for name in made:
                (folder / name).unlink(missing_ok=True)
            if folder.name not in folders:
                with contextlib.suppress(OSError):  # somebody's decisions are in it
                    folder.rmdir()

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that it is there whole or not at all."""
        target = self.root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, content)

    def json(self, name: str, value: Any) -> None:
        self.write(name, (json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())

    def csv(self, name: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
        self.write(name, csv_bytes(columns, rows))

    def samples(self, folder: str, samples: Table) -> None:
        """Write a client's samples, worst first, as CSV and as Parquet."""
        texts = ("id", "path", "given_label", "suggested_label")
        columns: dict[str, Any] = {name: samples[name] for name in SAMPLE_COLUMNS}
        columns |= {name: [str(value) for value in samples[name].tolist()] for name in texts}
        self.csv(f"{folder}/samples.csv", SAMPLE_COLUMNS, Table(columns).rows())
        self.write(f"{folder}/samples.parquet", _parquet(columns, texts))


def _parquet(columns: Mapping[str, Any], texts: Sequence[str]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {"rank": pa.int64(), "is_label_issue": pa.bool_(), **dict.fromkeys(texts, pa.string())}
    arrays = {name: pa.array(column, kinds.get(name, pa.float64())) for name, column in columns.items()}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(arrays), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def csv_bytes(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as a CSV file; unknown numbers are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in columns])
    return text.getvalue().encode()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.{DIGITS}f}"
    return value


def write_whole(target: Path, content: bytes) -> None:
    """Write a file beside its place and rename it, so that nobody ever reads half of it."""
    beside = target.with_name(f".{target.name}.part")
    try:
        beside.write_bytes(content)
        beside.replace(target)
    finally:  # it is gone by now unless something went wrong
        beside.unlink(missing_ok=True)


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise AuditFolderError(f"Cannot write into {path}: {problem.strerror}. Choose another folder.") from None
