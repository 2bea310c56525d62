"""`fedsir doctor`: is everything here that a run needs, and does this machine compute the same twice?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import typer

from fedsir.cli import options


def doctor(data_dir: options.DataDir = None, as_json: options.Json = False) -> None:
    """Show versions, device, data found and what runs share, and test that runs are deterministic on this machine."""
    found = _examine(data_dir)
    if as_json:
        options.echo_json(found)
    else:
        _print(found)
    if not found["deterministic"]:
        raise typer.Exit(1)


def _examine(data_dir: Path | None) -> dict[str, Any]:
    from fedsir.data.directory import data_directory
    from fedsir.data.source import DATASETS, load_source
    from fedsir.engines.core_slots import CoreSlots
    from fedsir.engines.shared_images import shared_files
    from fedsir.errors import DataError
    from fedsir.experiment.devices import available_devices
    from fedsir.experiment.provenance import processor, versions
    from fedsir.models.weights import OFFICIAL_FILE, OTHER_FILE

    folder = data_directory(data_dir)
    data: dict[str, str] = {}
    for name in DATASETS:
        try:
            load_source(name, data_dir=folder, seed=0)
            data[name] = "found"
        except DataError as problem:
            data[name] = str(problem)
    slots = CoreSlots.of_machine()
    weights = [name for name in (OFFICIAL_FILE, OTHER_FILE) if (folder / name).is_file()]
    return {
        "versions": versions(),
        "processor": processor(),
        "cores": options.n_workers(None),
        "cores_in_use": None if slots is None else slots.n_in_use(),
        "shared_images": [
            {"file": str(file.path), "bytes": file.n_bytes, "is_in_use": file.is_in_use} for file in shared_files()
        ],
        "devices": available_devices(),
        "data_directory": str(folder),
        "data": data,
        "imagenet_weights": weights[0] if weights else None,
        "deterministic": _is_deterministic(),
    }


def _is_deterministic() -> bool:
    """Whether one and two workers end in the same model, byte for byte."""
    from fedsir.experiment.recipes import resolve
    from fedsir.experiment.runner import Where, run_experiment

    config = resolve("digits", {"rounds": 1, "method": {"name": "fedavg"}})
    with tempfile.TemporaryDirectory(prefix="fedsir-doctor-") as folder:
        hashes = {
            run_experiment(config, Where(Path(folder) / str(workers), workers))["model_sha256"] for workers in (1, 2)
        }
    return len(hashes) == 1


def _print(found: dict[str, Any]) -> None:
    for name, version in found["versions"].items():
        typer.echo(f"{name:13} {version}")
    typer.echo(f"{'processor':13} {found['processor']}")
    in_use = found["cores_in_use"]
    taken = "runs do not wait for each other" if in_use is None else f"{in_use} in use by runs now"
    typer.echo(f"{'cores':13} {found['cores']}, {taken}")
    for file in found["shared_images"]:
        state = "in use" if file["is_in_use"] else "left by a killed run; the next run removes it"
        typer.echo(f"{'shared images':13} {file['file']}, {options.size(file['bytes'])}, {state}")
    typer.echo(f"{'devices':13} {', '.join(found['devices'])}")
    typer.echo(f"{'data':13} in {found['data_directory']}")
    for name, state in found["data"].items():
        typer.echo(f"  {name:11} {state.partition('. ')[0]}")  # --json has the whole message
    typer.echo(f"  {'resnet18':11} {found['imagenet_weights'] or 'no ImageNet weights'}")
    verdict = "the same bytes with 1 and 2 workers" if found["deterministic"] else "FAILED: 1 and 2 workers differ"
    typer.echo(f"{'determinism':13} {verdict}")
