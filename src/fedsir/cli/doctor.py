"""`fedsir doctor`: is everything here that a run needs, and does this machine compute the same twice?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import typer

from fedsir.cli import options
from fedsir.cli.terminal import say_json, say_table


def doctor(data_dir: options.DataDir = None, as_json: options.Json = False) -> None:
    """Check versions, devices and data, and that runs repeat exactly.

    The last check trains a small model with one and with two workers and compares their bytes.
    """
    found = _examine(data_dir)
    if as_json:
        say_json(found)
    else:
        _print(found)
    if not found["deterministic"]:
        raise typer.Exit(1)


def _examine(data_dir: Path | None) -> dict[str, Any]:
    from fedsir.data.directory import data_directory
    from fedsir.data.source import DATASETS, load_source
    from fedsir.errors import DataError
    from fedsir.models.weights import OFFICIAL_FILE, OTHER_FILE
    from fedsir.runs.devices import available_devices
    from fedsir.runs.provenance import processor, versions

    folder = data_directory(data_dir)
    data: dict[str, str] = {}
    for name in DATASETS:
        try:
            load_source(name, data_dir=folder, seed=0)
            data[name] = "found"
        except DataError as problem:
            data[name] = str(problem)
    weights = [name for name in (OFFICIAL_FILE, OTHER_FILE) if (folder / name).is_file()]
    return {
        "versions": versions(),
        "processor": processor(),
        "cores": options.n_workers(None),
        "devices": available_devices(),
        "data_directory": str(folder),
        "data": data,
        "imagenet_weights": weights[0] if weights else None,
        "deterministic": _is_deterministic(),
    }


def _is_deterministic() -> bool:
    """Whether one and two workers end in the same model, byte for byte."""
    from fedsir.runs.recipes import resolve
    from fedsir.runs.runner import RunTarget, run_experiment

    config = resolve("digits", {"rounds": 1, "method": {"name": "fedavg"}})
    with tempfile.TemporaryDirectory(prefix="fedsir-doctor-") as folder:
        hashes = {
            run_experiment(config, RunTarget(Path(folder) / str(workers), workers))["model_sha256"]
            for workers in (1, 2)
        }
    return len(hashes) == 1


def _print(found: dict[str, Any]) -> None:
    verdict = "the same bytes with 1 and 2 workers" if found["deterministic"] else "FAILED: 1 and 2 workers differ"
    rows = [
        *found["versions"].items(),
        ("processor", found["processor"]),
        ("cores", str(found["cores"])),
        ("devices", ", ".join(found["devices"])),
        ("data", f"in {found['data_directory']}"),
        *((f"  {name}", state.partition(". ")[0]) for name, state in found["data"].items()),  # --json has it whole
        ("  resnet18", found["imagenet_weights"] or "no ImageNet weights"),
        ("determinism", verdict),
    ]
    say_table((), rows, is_shortened=False, left=(0, 1))
