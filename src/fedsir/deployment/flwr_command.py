"""Flower's own command, started by us: offline, and read back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedsir.deployment.server import RESULT, flower_home
from fedsir.engines.flower.offline import check_installed, environment
from fedsir.errors import ConfigError


def run_app(folder: Path, federation: str | None, over: Mapping[str, Any]) -> dict[str, Any]:
    """Run an app to its end with some settings changed; return what its server says."""
    check_installed("flwr")
    if not (folder / "pyproject.toml").is_file():
        raise ConfigError(f"{folder} is not an app: `fedsir flower new` writes one.")
    words = [
        sys.executable,
        "-m",
        "flwr.cli.app",
        "run",
        str(folder),
        *([federation] if federation else []),
        "--stream",
    ]
    words += ["--run-config", " ".join(f"{key}={json.dumps(value)}" for key, value in over.items())]
    done = subprocess.run(words, env=environment(flower_home()), capture_output=True, text=True, check=False)
    for line in reversed(done.stdout.splitlines()):
        _, found, text = line.partition(RESULT)
        if found:
            result: dict[str, Any] = json.loads(text)
            return result
    said = (done.stderr or done.stdout).strip().splitlines()
    raise ConfigError(f"flwr run failed: {said[-1] if said else f'code {done.returncode}'}")
