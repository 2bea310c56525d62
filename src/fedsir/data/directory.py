"""Where published data sets lie on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_directory(explicit: str | Path | None = None) -> Path:
    """Return the folder to look in: the one named, else ``FEDSIR_DATA``, else the user's cache folder."""
    if explicit is not None:
        return Path(explicit).expanduser()
    from_environment = os.environ.get("FEDSIR_DATA")
    if from_environment:
        return Path(from_environment).expanduser()
    return Path(platformdirs.user_cache_dir("fedsir"))
