"""Pictures of the samples whose labels a run changed, from the data set if it can be found again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from fedsir.data.config import DataConfig
from fedsir.errors import FedsirError
from fedsir.report.pictures import Grid, Shown, picture_of_array
from fedsir.report.run_files import Labels, RunFiles
from fedsir.runs.run_folder import RunFolder

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData

MOST_PICTURES = 96


def changed_pictures(files: RunFiles, data_dir: Path | None = None) -> Grid | str:
    """Return pictures of changed labels, or a sentence that says why there are none."""
    labels = files.labels
    if labels is None:
        return "labels.npz is not in the run's folder, which says whose labels were changed."
    changed = np.flatnonzero(labels.given != labels.corrected)
    if len(changed) == 0:
        return "No label was changed."
    try:
        data = _data_again(files, data_dir)
    except FedsirError as problem:
        return f"The images are not shown, because the data were not found again: {str(problem).rstrip('.')}."
    if files.federation is None or data.sha256 != files.federation.sha256:
        return "The images are not shown, because the data have changed since the run."
    return Grid(tuple(_shown(data, labels, int(i)) for i in spread_over_clients(changed, labels.client[changed])))


def _data_again(files: RunFiles, data_dir: Path | None) -> FederatedData:
    """Return the federation of the run, dealt again; the method's settings, which may name code, are not read."""
    from fedsir.data.dealing import load_federation

    stored = RunFolder(files.folder).stored_config()["data"]
    try:
        config = DataConfig(**stored)
    except (ValidationError, TypeError):
        raise FedsirError("its settings are of another version of fedsir.") from None
    return load_federation(config, seed=int(files.settings["seed"]), data_dir=data_dir)


def spread_over_clients(
    samples: NDArray[np.int64], clients: NDArray[np.int64], most: int = MOST_PICTURES
) -> NDArray[np.int64]:
    """Return at most so many of the samples (n,), from all clients in turn and from all over each client's list."""
    owners, n_each = np.unique(clients, return_counts=True)
    quota = np.zeros(len(owners), np.int64)
    while quota.sum() < min(most, len(samples)):
        open_ones = np.flatnonzero(quota < n_each)
        room = min(most, len(samples)) - int(quota.sum())
        quota[open_ones[:room]] += 1
    chosen = []
    for owner, n, total in zip(owners, quota, n_each, strict=True):
        own = samples[clients == owner]
        chosen.append([int(own[k * total // n]) for k in range(n)])
    longest = max(map(len, chosen), default=0)
    return np.array([row[k] for k in range(longest) for row in chosen if k < len(row)], np.int64)


def _shown(data: FederatedData, labels: Labels, i: int) -> Shown:
    true = data.truth.true_labels
    lines = [f"client {labels.client_names[labels.client[i]]}, sample {labels.samples[i]}"]
    judged = ""
    if true is not None:
        judged = "right" if true[i] == labels.corrected[i] else "wrong"
        lines.insert(0, "✓ right" if judged == "right" else f"✗ in truth {labels.class_names[true[i]]}")
    return Shown(
        picture=picture_of_array(data.images[data.image_rows[i]]),
        sample=str(labels.samples[i]),
        client=labels.client_names[labels.client[i]],
        given=labels.class_names[labels.given[i]],
        suggested=labels.class_names[labels.corrected[i]],
        lines=tuple(lines),
        judged=judged,
    )
