"""docs/privacy.md is what the reply types say, and these say what every field means."""

import importlib.util
import sys
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import fedsir
from fedsir.auditing.federated import FederatedAudit
from fedsir.engines.client_host import ClientHost
from fedsir.engines.wire import decode
from fedsir.methods.registry import BUILT_IN, method_class
from fedsir.methods.replies import Reply, Trained, Weights
from fedsir.methods.reply_check import reply_type

ROOT = Path(__file__).resolve().parents[2]
SIZES = ("classes", "pairs", "features", "residual rank", "images")


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


@pytest.mark.parametrize("method", [*map(method_class, BUILT_IN), FederatedAudit], ids=lambda method: method.name)
def test_every_task_says_when_it_is_asked(method: type[Any]) -> None:
    for task, function in method.tasks().items():
        assert "asked" in (function.__doc__ or ""), f"{method.name}.{task}: its docstring does not say when it is asked"


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("fedsir", {"method.relabel.every": 1, "method.identify.epochs": 1, "method.identify.split": "pairwise"}),
        ("fednoro", {"method.identify.after": 1}),
        ("rofl", {}),
        ("rhfl", {"method.pretrain_epochs": 1}),
    ],
)
def test_arrays_are_sent_in_the_precision_that_the_page_counts(
    privacy: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, settings: dict[str, Any]
) -> None:
    sent: list[tuple[type[Reply], Any]] = []

    def run(host: ClientHost, task: Any, where: Any, payload: Any) -> bytes:
        data = really_run(host, task, where, payload)
        sent.append((reply_type(task), decode(data)))
        return data

    really_run = ClientHost._run
    monkeypatch.setattr(ClientHost, "_run", run)
    data = fedsir.FederatedData.load("digits", n_train=200, n_test=50, public="held-out", partition="iid", n_clients=4)
    fedsir.simulate(data, method=name, rounds=2, settings=settings).run()
    counted = set()
    for declared, tree in sent:
        for field in privacy.fields_of(declared, privacy.Example({}, dict.fromkeys(SIZES, 1))):
            value = reduce(lambda node, part: node and node.get(part), field.name.split("."), tree)
            if isinstance(field.example, torch.Tensor) and value is not None:
                assert value.dtype == field.example.dtype, f"{declared.__name__}.{field.name}"
                counted.add(field.name)
    assert counted
