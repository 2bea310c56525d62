"""Engines by name."""

import importlib.util
from typing import Any

import pytest

import fedsir
from fedsir.engines.choice import engine_opener
from fedsir.errors import ConfigError


def test_an_unknown_engine_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"there is no 'flowr'\. Did you mean 'flower'\? Use local or flower"):
        engine_opener("flowr", 1)


def test_without_flower_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, deal: Any) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    data = deal({"a": range(5), "b": range(5, 10)})
    with pytest.raises(ConfigError, match=r"'flwr', which is not installed: pip install 'fedsir\[flower\]'"):
        fedsir.simulate(data, "fedavg", engine="flower")


def test_what_opens_an_engine_is_taken_as_it_is() -> None:
    def mine(spec: Any) -> Any:
        return spec

    assert engine_opener(mine, 1) is mine
