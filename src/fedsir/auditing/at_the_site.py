"""A site's part of a federated audit: its samples with features, and the folder that it alone gets to see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.auditing.findings import Findings, client_row, clients_table, confusion_table, labels_like
from fedsir.auditing.folder_writer import write_folder
from fedsir.auditing.from_files import Prepared, prepare
from fedsir.auditing.result import AuditResult
from fedsir.auditing.sources import read_data
from fedsir.auditing.table import Table
from fedsir.data.naming import named_entries
from fedsir.data.preprocessing import Preprocessing
from fedsir.errors import DataError
from fedsir.stages.rate_interval import LEVEL, RateInterval

if TYPE_CHECKING:
    from fedsir.data.arrays import Labels
    from fedsir.engines.client_store import ClientStore

GIVEN = "given"  # as --features: the site's npz file has an array `features`


@dataclass(frozen=True, eq=False)
class SiteSamples:
    """A site's samples.

    Attributes
    ----------
    found : with features, as the site's data have them
    labels : (n,) given labels, by number in `class_names`
    class_names : of the federation
    """

    client: str
    found: Prepared
    labels: Labels
    class_names: tuple[str, ...]

    def store(self) -> ClientStore:
        """Return what the client's half of the audit is handed: features in place of images."""
        from fedsir.engines.client_store import ClientStore

        n = len(self.labels)
        features = np.asarray(self.found.features, np.float32)
        return ClientStore(
            rows_by_client={self.client: (0, n)},
            labels=self.labels,
            image_rows=np.arange(n),
            test_rows=np.zeros(0, np.int64),
            images=features[:, :, None, None],  # type: ignore[arg-type]
            n_classes=len(self.class_names),
            preprocessing=Preprocessing((), (), flip=False, crop_padding=0),
        )

    def result(self, state: Mapping[str, Any]) -> AuditResult:
        """Return the site's own audit from what the client's half has kept: `client.state["audit"]`."""
        found = Findings(**{name: state[name].numpy() for name in Findings.__dataclass_fields__})
        about, interval, n = state["about"], state["interval"], len(self.labels)
        names = self.class_names
        is_issue = found.suggested != self.labels
        row = client_row(
            self.client,
            n,
            len(set(self.labels.tolist())),
            about["verdict"],
            about["reason"],
            judged=found.part_judged(),
            n_others=about["n_others"],
            interval=None if interval is None else RateInterval(**interval),
            probability=np.nan if about["probability"] is None else about["probability"],
            suspicious=int(is_issue.sum()),
        )
        ids = [str(i) for i in range(n)] if self.found.ids is None else [str(entry) for entry in self.found.ids]
        paths = [""] * n if self.found.paths is None else [str(entry) for entry in self.found.paths]
        texts = np.array([names[label] for label in self.labels.tolist()], dtype=object)
        return AuditResult(
            clients=clients_table([row]),
            samples=Table(
                {
                    "client": np.full(n, self.client),
                    "id": np.array(ids),
                    "path": np.array(paths),
                    "given_label": texts,
                    "suggested_label": labels_like(texts, names, found.suggested, self.labels),
                    "is_label_issue": is_issue,
                    "score": found.score,
                    "suggested_probability": found.suggested_probability,
                    "rank": found.ranks(),
                }
            ),
            confusion=confusion_table(
                (self.client, names[one], names[other], count) for one, other, count in found.cells(self.labels)
            ),
            class_names=names,
            n_features=int(self.found.features.shape[1]),
            settings={"interval": LEVEL, "temperature": about["temperature"]},
            note=about["note"],
        )

    def write(self, state: Mapping[str, Any], folder: Path) -> Path:
        """Write the site's audit: its list, its page with thumbnails, all that review, apply and export need."""
        return write_folder(self.result(state), folder, self.found.origin)


def site_samples(
    path: Path,
    client: str,
    class_names: Sequence[str],
    extractor: str,
    image_size: int | None,
    *,
    data_dir: Path | None = None,
    download: bool = False,
) -> SiteSamples:
    """Return a site's samples with features, by a network or as its npz file has them."""
    data = read_data(path, client, wants_images=extractor != GIVEN)
    if extractor == GIVEN and data.features is None:
        raise DataError(
            "its data hold no features: add an array 'features' to its npz file, or let a network make them of images "
            "(--features resnet18)"
        )
    found = prepare(data, extractor, image_size, data_dir=data_dir, download=download)
    if found.features.ndim != 2 or found.features.dtype.kind not in "fiub":
        raise DataError(f"features have shape {found.features.shape} {found.features.dtype}; expected (samples, d)")
    entries, names = named_entries("labels", found.labels, len(found.features), "rows of features")
    number = {name: c for c, name in enumerate(class_names)}
    if strange := sorted(set(names.values()) - set(number)):
        raise DataError(f"it has class {strange[0]!r}, which it did not name before: its data have changed")
    labels = np.array([number[names[entry]] for entry in entries], np.int64)
    return SiteSamples(client, found, labels, tuple(class_names))
