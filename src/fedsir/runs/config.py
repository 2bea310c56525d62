"""A run's settings: one typed place each, from a recipe, the command line, or Python. Needs no torch."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import Field, SerializeAsAny, ValidationError

from fedsir.data.config import DataConfig
from fedsir.data.public import COUNTERPART, HELD_OUT
from fedsir.data.source import DATASETS
from fedsir.errors import ConfigError
from fedsir.methods import method_file
from fedsir.methods.registry import config_class
from fedsir.methods.settings import MethodConfig, Settings
from fedsir.models.config import ModelConfig
from fedsir.settings import explain, refuse_odd_values, shortened

Tree = dict[str, Any]
MOST_LEVELS = 20  # of tables in tables; no setting is nearly as deep
NOT_PATHS = (None, HELD_OUT, *DATASETS)  # of settings that name data


class RunConfig(Settings):
    """Everything that decides a run's result. Where it runs (workers, device, folders) is not in here."""

    seed: int = Field(0, ge=0, description="root of every random draw")
    rounds: int = Field(20, ge=1, description="rounds of training (T)")
    participation: float = Field(1.0, gt=0, le=1, description="share of the clients drawn for each round")
    dropout: float = Field(0.0, ge=0, lt=1, description="probability that a drawn client does not answer")
    evaluate_every: int = Field(1, ge=1, description="rounds between evaluations; the last is always evaluated")
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    method: SerializeAsAny[MethodConfig]
    method_sha256: str | None = Field(
        None,
        description="hash of the file behind method.name = FILE.py:CLASS; filled in: other code is another run",
    )

    def tree(self) -> Tree:
        """Return the settings as nested plain values; unset optional ones are left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def to_toml(self) -> str:
        """Return the settings as a TOML file that `fedsir run` takes back."""
        return tomli_w.dumps(self.tree())

    @property
    def sha256(self) -> str:
        return hashlib.sha256(json.dumps(self.tree(), sort_keys=True).encode()).hexdigest()


def parse_config(tree: Mapping[str, Any]) -> RunConfig:
    """Return checked settings with every schedule resolved; any fault is one line that names the key."""
    method_tree = tree.get("method")
    if not isinstance(method_tree, Mapping) or "name" not in method_tree:
        raise ConfigError("method.name is missing: which method shall run? `fedsir list methods` names them.")
    try:
        refuse_odd_values({key: value for key, value in tree.items() if key != "method"}, RunConfig)
        kind = config_class(str(method_tree["name"]))
        refuse_odd_values(method_tree, kind, "method.")
    except RecursionError:
        raise ConfigError("The settings are nested too deeply.") from None
    try:
        method = kind.model_validate(dict(method_tree))
    except ValidationError as problem:
        raise ConfigError(explain(problem, kind, "method.")) from None
    try:
        config = _with_public(RunConfig.model_validate({**tree, "method": method}))
    except ValidationError as problem:
        raise ConfigError(explain(problem, RunConfig, "")) from None
    filled = {
        "method": method.resolved(config.rounds).fitted(is_pretrained=config.model.is_pretrained),
        "method_sha256": _method_sha256(config),
    }
    return _with_whole_paths(config.model_copy(update=filled))


def _with_whole_paths(config: RunConfig) -> RunConfig:
    """Return the settings with relative paths of data made absolute: config.toml means the same from everywhere."""
    data, weights = config.data, config.model.weights
    paths = {
        key: os.path.abspath(value)  # noqa: PTH100 - Path would refuse a zero byte here
        for key in ("dataset", "public", "labels_file")
        if (value := getattr(data, key)) not in NOT_PATHS
    }
    if paths:
        config = config.model_copy(update={"data": data.model_copy(update=paths)})
    if weights not in ("none", "imagenet"):
        whole = {"weights": os.path.abspath(weights)}  # noqa: PTH100
        config = config.model_copy(update={"model": config.model.model_copy(update=whole)})
    return config


def _with_public(config: RunConfig) -> RunConfig:
    """Return the settings with data.public filled in where the method cannot do without."""
    if not config.method.needs_public or config.data.public is not None:
        return config
    if config.data.dataset not in COUNTERPART:
        raise ConfigError(
            f"data.public is missing: {config.method.name} needs unlabelled images that everybody has. Name a folder "
            "or an npz file of them, or held-out to take an eighth of the training images."
        )
    data = config.data.model_copy(update={"public": COUNTERPART[config.data.dataset]})
    return config.model_copy(update={"data": data})


def _method_sha256(config: RunConfig) -> str | None:
    """Return the hash of the file that the method is in, None for installed ones; it must be the stated one, if any."""
    name = config.method.name
    found = method_file.file_sha256(name) if method_file.is_in_file(name) else None
    if config.method_sha256 not in (None, found):
        raise ConfigError(
            f"method_sha256: these settings were made for other code than {name} has now: restore the file, or drop "
            "method_sha256 to run the code as it is."
        )
    return found


def read_toml(path: Path) -> Tree:
    """Return the content of a TOML file, with or without a byte order mark; what is none is one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise ConfigError(f"{path} cannot be read: {problem.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise ConfigError(f"{path} is not a TOML file: {problem}.") from None
    except ValueError:  # Python reads no integers of thousands of digits
        raise ConfigError(f"{path} is not a file of settings: it holds a number of thousands of digits.") from None
    except RecursionError:
        raise ConfigError(f"{path} is not a file of settings: its tables or lists are nested too deeply.") from None


def merge(tree: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    """Return `tree` with the values of `over` in their places, table by table."""
    merged = dict(tree)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_assignment(text: str, option: str = "--set") -> Tree:
    """Return the tree of one `a.b=c`; c is read as TOML where it is TOML (numbers, true, lists), else as a string."""
    key, equals, value_text = text.partition("=")
    key = key.strip()
    if not equals or not key or not all(key.split(".")):
        raise ConfigError(f"{option} {text[:100]}: give a key and a value, as in {option} method.lr=0.001.")
    try:
        read = tomllib.loads(f"value = {value_text}")
    except (ValueError, RecursionError):  # text, also that of a number with thousands of digits
        read = {}
    # A text of several lines may parse as more than one assignment, which it is not.
    value = read["value"] if read.keys() == {"value"} else value_text.strip()
    return nested(key, value)


def nested(key: str, value: Any) -> Tree:
    """Return the tree that has `value` at the dotted `key` and nothing else."""
    if key.count(".") > MOST_LEVELS:
        raise ConfigError(f"There is no setting {shortened(key)}.")
    first, _, rest = key.partition(".")
    return {first: nested(rest, value) if rest else value}


def tree_of(by_key: Mapping[str, Any]) -> Tree:
    """Return settings by dotted key as a tree; None stands for one that is not given."""
    tree: Tree = {}
    for key, value in by_key.items():
        if value is not None:
            tree = merge(tree, nested(key, value))
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return (dotted key, value) of every leaf of a tree."""
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        pairs += flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else [(prefix + key, value)]
    return pairs
