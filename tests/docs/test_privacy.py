"""docs/privacy.md is what the reply types say, and these say what every field means."""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from fedsir.methods.registry import BUILT_IN, method_class
from fedsir.methods.replies import Reply, Trained, Weights

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def privacy() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_privacy", ROOT / "docs" / "make_privacy.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_types_say(privacy: ModuleType) -> None:
    stored = privacy.PAGE.read_text(encoding="utf-8")
    assert stored == privacy.page(privacy.cifar10()), "docs/privacy.md is stale: run `make docs`"


def test_a_field_without_a_meaning_is_named(privacy: ModuleType) -> None:
    @dataclass(frozen=True)
    class Chatty(Trained):
        """A reply whose author forgot a line.

        n_seen : how many samples it has seen
        """

        n_seen: int
        labels: str

    with pytest.raises(LookupError, match=r"Chatty\.labels: its docstring has no line"):
        list(privacy.fields_of(Chatty, privacy.cifar10()))


def test_optional_fields_are_counted_once_with_and_once_without(privacy: ModuleType) -> None:
    @dataclass(frozen=True)
    class MayHoldAModel(Reply):
        """model : weights, if there are any"""

        model: Weights | None

    example = privacy.Example({"w": torch.zeros(1000)}, {})
    least, most = (privacy.message_bytes(MayHoldAModel, example, is_full=full) for full in (False, True))
    assert 4000 <= most - least < 4200  # a thousand float32 and a few characters of header
    assert least < 200


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_task_says_when_it_is_asked(name: str) -> None:
    for task, function in method_class(name).tasks().items():
        assert "asked" in (function.__doc__ or ""), f"{name}.{task}: its docstring does not say when it is asked"
