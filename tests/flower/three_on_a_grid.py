"""Three real sites in folders, over a grid without a network, and a server that can be started again and again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedsir.data.source import Source
from fedsir.deployment.app_config import ServerConfig
from fedsir.deployment.server import serve
from fedsir.deployment.site import site_app
from fedsir.deployment.site_folder import write_site
from fedsir.runs.config import RunConfig, parse_config
from loopback_grid import LoopbackGrid

WORDS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
NOISY = "mill"
SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "small_cnn", "weights": "none"},
    "method": {
        "name": "fedsir",
        "batch_size": 16,
        "lr": 0.003,
        "identify": {"epochs": 4, "lr": 0.003, "min_class_samples": 2},
        "relabel": {"every": 1, "min_samples": 2, "rule": "direction"},
    },
}


class Federation:
    """Three sites in folders, and a server that can be started again and again."""

    def __init__(self, folder: Path, digits: Source, **method: Any) -> None:
        self.folder, self.digits = folder, digits
        self.method = {**SETTINGS["method"], **method}
        self.app = site_app("fedsir", __file__)
        self.grid = LoopbackGrid(self.app, 0)
        for k, name in enumerate(("hill", NOISY, "lake")):
            self.add(name, range(100 * k, 100 * k + 100))

    def add(self, name: str, rows: Sequence[int], classes: Any = WORDS) -> Path:
        images, labels = self.digits.images[self.digits.train_rows[rows]], self.digits.train_labels[rows]
        if name == NOISY:
            labels = (labels + np.random.default_rng(0).integers(0, 10, len(labels))) % 10
        self.folder.mkdir(exist_ok=True)
        np.savez(self.folder / f"{name}.npz", images=images[:, 0], labels=classes[labels])
        site = self.folder / name
        write_site(site, name, self.folder / f"{name}.npz", superlink="localhost:1", ca=None)
        self.grid.nodes[len(self.grid.nodes) + 1] = {"site": str(site)}
        return site

    def serve(self, **server: Any) -> dict[str, Any]:
        settings = {"run_dir": str(self.folder / "run"), "wait": 0.1, "timeout": 5.0, "min_sites": 3}
        return serve(self.grid, ServerConfig(**{**settings, **server}), self.config())

    def config(self) -> RunConfig:
        return parse_config({**SETTINGS, "method": self.method})

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "run" / "metrics.jsonl").read_text().splitlines()]
