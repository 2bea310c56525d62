"""An app's settings: those of a run, and those of the server, as the flat table that Flower knows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from fedsir.errors import ConfigError, did_you_mean
from fedsir.methods import method_file
from fedsir.runs.config import RunConfig, flat, parse_assignment, parse_config, tree_of


@dataclass(frozen=True)
class ServerConfig:
    """What the server needs besides a run's settings.

    Attributes
    ----------
    run_dir : folder of the run at the server; the same folder goes on where it stopped
    sites : names of the clients, separated by commas; empty for those that are there when the run begins
    min_sites : fewest sites to begin and to go on with
    wait : seconds to wait for so many sites
    timeout : seconds for a site to answer
    max_reply : MB that a site may answer; 0 for 64, or eight times the model if that is more
    test_data : npz file or folder of the server's own to test on; empty for none
    check : say who is there and what does not fit, and train nothing
    audit_out : folder at the server for a label audit; with it the sites' labels are audited, and nothing trains
    audit_features : what makes features for it: resnet18, MODULE:CLASS, or "given" for those in sites' npz files
    audit_image_size : side that images are brought to for it; 0: about theirs
    audit_min_cell : smallest count that sites tell
    audit_min_class_samples : a class of which a site has fewer samples is in none of its sums
    audit_download : let sites fetch the network's weights if they have none
    """

    run_dir: str = ""
    sites: str = ""
    min_sites: int = 2
    wait: float = 600.0
    timeout: float = 3600.0
    max_reply: int = 0
    test_data: str = ""
    check: bool = False
    audit_out: str = ""
    audit_features: str = "resnet18"
    audit_image_size: int = 0
    audit_min_cell: int = 5
    audit_min_class_samples: int = 1
    audit_download: bool = False

    def __post_init__(self) -> None:
        if self.min_sites < 1 or self.wait <= 0 or self.timeout <= 0:
            raise ConfigError("min-sites, wait and timeout must be positive.")
        if self.max_reply < 0:
            raise ConfigError("max-reply must be a number of MB, or 0 for what the model's size suggests.")

    @property
    def max_reply_bytes(self) -> int | None:
        """What `max_reply` says in bytes; None where it leaves that to the model's size."""
        return self.max_reply * 1_000_000 or None

    @property
    def named_sites(self) -> tuple[str, ...]:
        """The names in `sites`."""
        return tuple(name.strip() for name in self.sites.split(",") if name.strip())


def server_keys() -> dict[str, Any]:
    """Return the server's keys as an app writes them, with their defaults."""
    return {f.name.replace("_", "-"): f.default for f in fields(ServerConfig) if f.default is not MISSING}


def read_app_config(table: Mapping[str, Any], method: str) -> tuple[ServerConfig, RunConfig]:
    """Return both halves of an app's settings; `method` is where the app has its method's code."""
    own = server_keys()
    settings = {key: _value(key, value) for key, value in table.items() if key not in own}
    given = settings.pop("method.name", method)
    if method_file.class_name(str(given)) != method_file.class_name(method):
        raise ConfigError(f"method.name: this app has the code of {method!r} alone, not of {given!r}.")
    known = {key for key, _ in flat(default_tree(method))}
    for key in settings:
        if key not in known and key.partition(".")[0] not in ("data", "model", "method"):
            raise ConfigError(f"There is no setting {key!r}.{did_you_mean(key, [*known, *own])}")
    server = ServerConfig(**{key.replace("-", "_"): _typed(key, table[key], own[key]) for key in own if key in table})
    return server, parse_config(tree_of({**settings, "method.name": method}))


def default_tree(method: str, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return all settings of a run of this method, resolved."""
    return parse_config(tree_of({**(over or {}), "method.name": method})).tree()


def method_in(app: Path, method: str) -> str:
    """Return where a method's code is: in the app's folder, or installed."""
    return f"{app / method}" if method_file.is_in_file(method) else method


def _value(key: str, value: Any) -> Any:
    """Return a value as TOML has it: Flower's tables have no lists, so these are written as text."""
    if isinstance(value, str) and value[:1] in "[{":
        found: Any = dict(flat(parse_assignment(f"{key}={value}")))[key]
        return found
    return value


def _typed(key: str, value: Any, default: Any) -> Any:
    kind = type(default)
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key}: must be {kind.__name__}, such as {default!r} (given: {value!r}).")
    return value
