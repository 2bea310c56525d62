"""Runs made up by hand."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fedsir.data.noise_rate import NoiseRate
from fedsir.paper.reproduction import Reproduction

LABELS = np.arange(1000) % 10


@pytest.fixture
def finish_runs() -> Callable[..., None]:
    """Return a function that writes the folders of a row's runs."""
    return write_runs


def write_runs(
    reproduction: Reproduction,
    name: str,
    *n_right: int,
    noise_rate: NoiseRate = 0.6,
    after: float = 0.5,
    **more: Any,
) -> None:
    """Write the folders of a row's runs: so many of 1,000 test images right, by seed; `more` is for result.json."""
    cell = next(
        c for c in reproduction.cells if c.variant.name == name and c.condition.noise_rate in (noise_rate, None)
    )
    before = 0.6 if isinstance(noise_rate, tuple) else noise_rate
    folders = {job.config.sha256: job.folder for job in reproduction.jobs}
    for config, n in zip(cell.configs, n_right, strict=False):
        folder = folders[config.sha256]
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(config.to_toml())
        result = {
            **{"method": config.method.name, "seed": config.seed, "accuracy": n / 1000, "accuracy_half_width": 0.03},
            **{"best_accuracy": 0.9, "last_10_accuracy": 0.9, "bytes_up": 1, "bytes_down": 1, "seconds": 1.0},
            **{"identification_accuracy": None, "noise_before": before, "noise_after": after, "model_sha256": "0"},
            **more,
        }
        (folder / "result.json").write_text(json.dumps(result))
        made = {
            **{"versions": {"fedsir": "0"}, "platform": "p", "processor": "c", "cores": 2, "device": "cpu"},
            "initial_weights": {},
        }
        (folder / "provenance.json").write_text(json.dumps(made))
        cost = {"seconds": 1.0, "failures": {}, "bytes_up": 1, "bytes_down": 1}
        lines = [{"round": t, "accuracy": n / 1000 * t / 20, **cost} for t in range(21)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        predicted = np.where(np.arange(1000) < n, LABELS, -1)
        np.savez(folder / "predictions.npz", predicted=predicted, labels=LABELS)
