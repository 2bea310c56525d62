"""labels.csv: the samples whose label was changed, for people to look at."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def changed_labels(
    samples: Sequence[object],
    given: NDArray[np.int64],
    corrected: NDArray[np.int64],
    class_names: Sequence[str],
    *,
    clients: Sequence[str] | None = None,
    scores: NDArray[np.float64] | None = None,
) -> bytes:
    """Return a CSV with sample, client, given and suggested label of every sample whose label was changed.

    With scores it has them, too, and the most doubtful labels come first.

    Parameters
    ----------
    samples, clients : (n,) what the owner knows each sample by, and whose it is; None where all are one client's
    given, corrected : (n,) class numbers
    scores : (n,) how likely each given label is right, NaN where nobody knows
    """
    rows = np.flatnonzero(corrected != given)
    if scores is not None:
        rows = rows[np.argsort(scores[rows], kind="stable")]  # NaN comes last
    columns: dict[str, list[object]] = {"sample": [samples[i] for i in rows.tolist()]}
    if clients is not None:
        columns["client"] = [clients[i] for i in rows.tolist()]
    columns["given"] = [class_names[c] for c in given[rows].tolist()]
    columns["suggested"] = [class_names[c] for c in corrected[rows].tolist()]
    if scores is not None:
        columns["score"] = ["" if math.isnan(s) else f"{s:.4f}" for s in scores[rows].tolist()]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode("utf-8", "backslashreplace")
