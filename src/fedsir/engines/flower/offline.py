"""What every Flower process is started with: it reports nothing, looks for no updates and installs nothing."""

from __future__ import annotations

import importlib.util
import os
from typing import TYPE_CHECKING

from fedsir.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # else the SuperLink installs what an app depends on
    "RAY_USAGE_STATS_ENABLED": "0",
}


def go_offline() -> None:
    """Say so in this process, before Flower is imported; whoever has set one of the variables keeps it."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


def environment(home: Path) -> dict[str, str]:
    """Return the environment for a process of Flower's that keeps its files in `home`."""
    return {**QUIET, **os.environ, "FLWR_HOME": str(home)}


def check_installed(*packages: str) -> None:
    """Refuse to begin without Flower; nothing of it is imported yet."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                f"engine: Flower needs the package {package!r}, which is not installed: pip install 'fedsir[flower]'."
            )
