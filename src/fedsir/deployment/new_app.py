"""Writes a Flower app for a method: a few lines that import fedsir, and every setting in its pyproject.toml."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from fedsir import __version__
from fedsir.deployment.app_config import server_keys
from fedsir.errors import ConfigError
from fedsir.methods import method_file

if TYPE_CHECKING:
    from fedsir.runs.config import RunConfig

LONGEST_NAME = 32  # letters of an app's name
NOT_OURS = ("method_sha256",)  # the app's own copy of the code counts

SERVER = '''"""The server: fedsir's loop over Flower's grid."""

from fedsir.deployment.server import server_app

app = server_app({method!r}, __file__)
'''
CLIENT = '''"""A site: it answers the tasks of the method, with its own data."""

from fedsir.deployment.site import site_app

app = site_app({method!r}, __file__)
'''
README = """\
---
title: {title}
labels: [federated learning, noisy labels, label noise]
dataset: [{dataset}]
---

# {title}

{method} as a Flower app, made by fedsir: federated learning when some clients' labels are wrong.

    flwr run . local-simulation --stream      # virtual clients; the data set is dealt to them
    flwr run . FEDERATION --stream            # real sites, each started with `fedsir flower site`
    fedsir flower check . FEDERATION          # who is there, and what does not fit; nothing trains
    fedsir flower audit . FEDERATION -o DIR   # which sites' labels look wrong; nothing trains

Settings are in `pyproject.toml` under `[tool.flwr.app.config]`. For one run,
`--run-config "rounds=50 method.lr=0.001"` changes some.

Results go to `run-dir`. The same command goes on there where it stopped.
"""


def write_app(folder: Path, config: RunConfig) -> Path:
    """Write an app for a run with these settings into a new folder; a method of the user's own is copied into it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} is already there: name a folder that does not exist yet.")
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:LONGEST_NAME] or "app"
    package = re.sub(r"\W", "_", f"{name}_app")
    method, code = config.method.name, None
    if method_file.is_in_file(method):
        code = Path(method.rpartition(":")[0])
        method = f"{code.name}:{method_file.class_name(method)}"
    inside = folder / package
    inside.mkdir(parents=True)
    if code is not None:
        shutil.copyfile(code, inside / code.name)
    words = {"method": method, "title": name, "dataset": Path(config.data.dataset).name}
    (inside / "__init__.py").write_text("", encoding="utf-8")
    (inside / "server_app.py").write_text(SERVER.format(**words), encoding="utf-8")
    (inside / "client_app.py").write_text(CLIENT.format(**words), encoding="utf-8")
    (folder / "README.md").write_text(README.format(**words), encoding="utf-8")
    # Else Flower would send the run's own files, who was how good among them, to every site with the app.
    (folder / ".gitignore").write_text("run/\n", encoding="utf-8")
    settings = {key: value for key, value in config.tree().items() if key not in NOT_OURS}
    settings["method"] = {**settings["method"], "name": method}
    own = server_keys() | {"run-dir": str((folder / "run").resolve())}
    project: dict[str, Any] = {
        "build-system": {"requires": ["hatchling"], "build-backend": "hatchling.build"},
        "project": {
            "name": name,
            "version": "0.1.0",
            "description": f"{method} over sites whose labels may be wrong",
            "license": "Apache-2.0",
            "dependencies": [f"fedsir[flower]=={__version__}"],
        },
        "tool": {
            "hatch": {"build": {"targets": {"wheel": {"packages": [package]}}}},
            "flwr": {
                "app": {
                    "publisher": "fedsir",
                    "components": {
                        "serverapp": f"{package}.server_app:app",
                        "clientapp": f"{package}.client_app:app",
                    },
                    "config": own | _without_lists(settings),
                }
            },
        },
    }
    (folder / "pyproject.toml").write_text(tomli_w.dumps(project), encoding="utf-8")
    return folder


def _without_lists(tree: dict[str, Any]) -> dict[str, Any]:
    """Return settings as Flower takes them: lists as text."""
    return {
        key: _without_lists(value) if isinstance(value, dict) else _text(value) if isinstance(value, list) else value
        for key, value in tree.items()
    }


def _text(values: list[Any]) -> str:
    return tomli_w.dumps({"x": values}).partition("=")[2].replace("\n", " ").strip()
