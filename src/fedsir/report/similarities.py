"""Class similarities of a run's clients, as small multiples.

A client sends two numbers about its class similarities and keeps the matrix, so a run has no matrices to show. Stage I
is exact, though: what a client computed can be computed once more from the settings, the data and the first model. The
mean of each matrix is then the one that the run has stored, which is checked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsir.errors import RunFolderError
from fedsir.report.charts.heat import similarity_panel
from fedsir.report.drawing import Html
from fedsir.report.judgement import SPECTRAL
from fedsir.report.run_files import RunFiles
from fedsir.report.wording import called
from fedsir.runs.run_folder import RunFolder

MOST_PANELS, MOST_CLASSES = 12, 100
CLOSE = 1e-3  # between the stored mean and the one computed again: machines round differently


@dataclass(frozen=True)
class Squares:
    """Matrices of several clients on one scale, which begins at `low`."""

    panels: tuple[Panel, ...]
    low: float


@dataclass(frozen=True)
class Panel:
    """One client's matrix."""

    name: str
    verdict: str
    mean: str
    chart: Html


def squares(files: RunFiles, data_dir: Path | None = None) -> Squares:
    """Return class similarities of noisy and clean clients in turn; what stands in the way is an error that says so."""
    from fedsir.data.dealing import load_federation
    from fedsir.data.directory import data_directory
    from fedsir.engines.device_settings import prepared
    from fedsir.models.initial import initial_model
    from fedsir.paper.similarity import stage_one

    folder = RunFolder(files.folder)
    if files.split is None or files.method not in SPECTRAL:
        raise RunFolderError(f"--similarities: {files.folder} has no Stage I, which the class similarities are from.")
    config = folder.config_of(SPECTRAL)
    if config is None:
        raise RunFolderError(f"--similarities: the settings of {files.folder} are of another version of fedsir.")
    data = load_federation(config.data, seed=config.seed, data_dir=data_dir)
    if files.federation is None or data.sha256 != files.federation.sha256:
        raise RunFolderError(f"--similarities: the data have changed since the run in {files.folder}.")
    if data.n_classes > MOST_CLASSES:
        raise RunFolderError(f"--similarities: {data.n_classes:,} classes are more than a small square can show.")
    with prepared("cpu"):
        initial = initial_model(config.model, data, seed=config.seed, data_dir=data_directory(data_dir))
    verdicts = files.verdicts()
    seen = {client: stage_one(config, data, client, initial, "cpu") for client in chosen_clients(verdicts)}
    for client, (_, told) in seen.items():
        _check(files, client, told.mean)
    known = np.concatenate([matrix[np.isfinite(matrix)] for matrix, _ in seen.values()] or [np.ones(1)])
    low = min(float(np.floor(known.min(initial=1.0) * 10) / 10), 0.9)
    found = []
    for i, (client, (matrix, told)) in enumerate(seen.items()):
        mean, name = "unknown" if math.isnan(told.mean) else f"{told.mean:.2f}", called(client)
        chart = similarity_panel(
            matrix,
            data.class_names,
            low,
            key=f"similarity-{i}",
            title=f"Class similarities of {name}",
            description=f"{verdicts[client]}; mean similarity of two different classes {mean}.",
        )
        found.append(Panel(name, verdicts[client], mean, chart))
    return Squares(tuple(found), low)


def _check(files: RunFiles, client: str, mean: float) -> None:
    """Raise an error if the run has stored another mean: then these are not the matrices that the clients had."""
    split = files.split
    if split is None or split.noise_rates or client not in split.statistics:
        return  # preset plus stores noise rates in their place
    stored = split.statistics[client][0]
    if not math.isclose(stored, mean, abs_tol=CLOSE) and not (math.isnan(stored) and math.isnan(mean)):
        raise RunFolderError(
            f"--similarities: {called(client)} had a mean similarity of {stored:.4f} in {files.folder}, and has "
            f"{mean:.4f} now: the run was made by another version of fedsir, or on a machine that rounds otherwise."
        )


def chosen_clients(verdicts: dict[str, str]) -> list[str]:
    """Return at most `MOST_PANELS` clients, half of them noisy where there are enough, noisy ones first."""
    noisy = [client for client, verdict in verdicts.items() if verdict == "noisy"]
    clean = [client for client, verdict in verdicts.items() if verdict == "clean"]
    half = MOST_PANELS // 2
    n_noisy = min(len(noisy), max(half, MOST_PANELS - len(clean)))
    return [*noisy[:n_noisy], *clean[: MOST_PANELS - n_noisy]]
