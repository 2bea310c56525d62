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
    raise ConfigError(f"flwr run failed: {what_failed(done.stderr or done.stdout) or f'code {done.returncode}'}")


def what_failed(output: str) -> str:
    """Return Flower's last error as one line: what stands in its last box, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    box: list[str] = []
    for line in lines:
        if line.startswith("╭"):
            box = []
        elif line.startswith("│"):
            box.append(line.strip("│ "))
    return " ".join(box) if box else next(iter(lines[-1:]), "")
