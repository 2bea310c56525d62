"""An audit's pages: what the shared one and each client's own show. How they look is `fedsir.report`'s affair."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from fedsir.auditing.folder import SITES, SITES_FOLDER
from fedsir.auditing.result import AuditResult
from fedsir.auditing.sharing import Shared
from fedsir.auditing.table import Table
from fedsir.report.audit_page import (
    AuditedClient,
    AuditView,
    ClientView,
    ConfusionCell,
    SuspiciousSample,
    audit_page,
    client_page,
)
from fedsir.report.pictures import Picture, picture_of_array

if TYPE_CHECKING:
    from fedsir.auditing.folder_writer import Origin

MOST_PICTURES, FEWEST_PICTURES, ALL_PICTURES = 60, 6, 6000  # on a client's page, and on all of them
MOST_LISTED = 500  # samples on a client's page


def shared_page(shared: Shared, origin: Origin, folders: Mapping[str, str], created: str) -> str:
    """Return report.html, which may be shared: it has counts, and no sample.

    folders : folder of each client that has a page of its own
    """
    n_skipped = sum(map(len, origin.skipped.values()))
    notes = [shared.note] if shared.note else []
    if n_skipped:
        notes.append(f"{_images(n_skipped)} could not be read, so nothing is said of them")
    notes += [f"{who} was left out: {why}" for who, why in shared.summary.get("left_out", {}).items()]
    clients = [
        _client(row, f"clients/{quote(folders[row['client']])}/report.html" if row["client"] in folders else "")
        for row in shared.clients
    ]
    return audit_page(
        AuditView(
            headline=f"{shared.summary['headline']}.",
            data=origin.name,
            features=_features(shared, origin),
            class_names=tuple(map(str, shared.class_names)),
            clients=tuple(clients),
            confusion=tuple(ConfusionCell(*cell) for cell in shared.pooled),
            min_cell=shared.min_cell,
            settings=_settings(shared, origin),
            notes=tuple(notes),
            commands=next_commands(SITES_FOLDER if origin.kind == SITES else "DIR"),
            created=created,
        )
    )


def own_page(
    result: AuditResult, origin: Origin, row: Mapping[str, Any], pictures: Mapping[str, Picture], created: str
) -> str:
    """Return a client's own report.html, with its suspicious samples; `row` is its row of `result.clients`."""
    samples = result.of_client(row["client"])
    suspicious = samples.take(samples["is_label_issue"].astype(bool))
    confusion = result.confusion.take(_of_client(result.confusion, row["client"]))
    n_skipped = len(origin.skipped.get(str(row["client"]), ()))
    return client_page(
        ClientView(
            headline=_own_headline(row),
            data=origin.name,
            client=_client(row, ""),
            class_names=tuple(map(str, result.class_names)),
            samples=tuple(_sample(sample, pictures) for sample in itertools.islice(suspicious.rows(), MOST_LISTED)),
            n_suspicious=suspicious.n_rows,
            confusion=tuple(
                ConfusionCell(str(cell["given"]), str(cell["suggested"]), cell["count"]) for cell in confusion.rows()
            ),
            why_no_pictures=""
            if origin.reader is not None
            else "Features were audited, so there are no images to show.",
            features=_features(result, origin),
            settings=_settings(result, origin),
            notes=(f"{_images(n_skipped)} could not be read; skipped.csv has a list",) if n_skipped else (),
            commands=next_commands(),
            created=created,
        )
    )


def thumbnails(result: AuditResult, origin: Origin) -> dict[str, Picture]:
    """Return small pictures of each client's worst samples, by id; empty where there are no images."""
    if origin.reader is None or origin.rows is None:
        return {}
    each = min(MOST_PICTURES, max(FEWEST_PICTURES, ALL_PICTURES // result.clients.n_rows))
    samples = result.samples
    is_wanted = samples["is_label_issue"].astype(bool) & (samples["rank"] <= each)
    rows = origin.rows[is_wanted].tolist()
    ids = dict(zip(rows, samples["id"][is_wanted].tolist(), strict=True))
    return {ids[row]: picture_of_array(image.transpose(2, 0, 1)) for row, image in origin.reader.chosen(rows)}


def next_commands(folder: str = "DIR") -> tuple[tuple[str, str], ...]:
    """Return what comes after an audit: what it does, and the command."""
    return (
        ("go through the suspicious samples", f"fedsir audit review {folder}"),
        ("write new label files", f"fedsir audit apply {folder} --accept 'score<0.2'"),
        ("take them to another tool", f"fedsir audit export {folder} --format label-studio"),
    )


def _images(n: int) -> str:
    return "1 image" if n == 1 else f"{n:,} images"


def _own_headline(row: Mapping[str, Any]) -> str:
    if row["verdict"] == "not assessed":
        return f"{row['client']} could not be assessed: {row['reason']}."
    looks = "look noisy" if row["verdict"] == "noisy" else "look clean"
    rate = "" if math.isnan(row["noise_rate"]) else f", about {row['noise_rate']:.0%} of them wrong"
    n = row["suspicious"]
    return (
        f"The labels of {row['client']} {looks}{rate}; {n:,} of {row['samples']:,} {'is' if n == 1 else 'are'} suspect."
    )


def _client(row: Mapping[str, Any], page: str) -> AuditedClient:
    numbers = ("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy")
    known = {name: None if math.isnan(row[name]) else row[name] for name in numbers}
    return AuditedClient(
        name=str(row["client"]),
        samples=row["samples"] if isinstance(row["samples"], int) else 0,
        classes=row["classes"],
        verdict=row["verdict"],
        reason=row["reason"],
        suspicious=row["suspicious"] if isinstance(row["suspicious"], int) else None,
        page=page,
        **known,
    )


def _sample(row: Mapping[str, Any], pictures: Mapping[str, Picture]) -> SuspiciousSample:
    return SuspiciousSample(
        rank=row["rank"],
        id=row["id"],
        given=str(row["given_label"]),
        suggested=str(row["suggested_label"]),
        score=row["score"],
        suggested_probability=row["suggested_probability"],
        path=row["path"],
        picture=pictures.get(row["id"]),
    )


def _of_client(table: Table, client: Any) -> NDArray[np.bool_]:
    return np.array([entry == client for entry in table["client"].tolist()], bool)


def _features(result: AuditResult | Shared, origin: Origin) -> str:
    if origin.extractor == "given":
        return f"features as given, {result.n_features} numbers a sample"
    size = f" of images at {origin.details['image_size']} pixels" if "image_size" in origin.details else ""
    return f"{origin.extractor}{size}, {result.n_features} numbers a sample"


def _settings(result: AuditResult | Shared, origin: Origin) -> dict[str, Any]:
    known = {"features": origin.extractor, "dimension": result.n_features}
    return known | {name: value for name, value in result.settings.items() if value is not None}
