"""The protocol: tasks, state, settings, registry, and FedAvg, the method everybody knows."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from fake_federation import FakeFederation, trained, weights
from fedsir.errors import ConfigError
from fedsir.methods import registry
from fedsir.methods.averaging import average_by_samples, mean_loss
from fedsir.methods.base import ServerState
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.fedned import FedNed
from fedsir.methods.fedsir import FedSIR
from fedsir.methods.local_training import make_optimizer
from fedsir.methods.settings import MethodConfig, Settings, per_hundred
from fedsir.stages.split import OffDiagonal, split_clients


@dataclasses.dataclass(frozen=True)
class StateWithMore(ServerState):
    history: list[float] = dataclasses.field(default_factory=list)


def test_only_marked_functions_are_tasks() -> None:
    assert set(FedAvg.tasks()) == {"train"}
    assert set(FedSIR.tasks()) == {
        *("identify", "describe", "hand_over", "judge"),
        *("train_clean", "sum_classes", "warm_up", "train_noisy"),
    }
    assert (set(FedNed.tasks()), set(FedNed.server_tasks())) == (
        {"train", "train_extreme"},
        {"score", "bad_answers", "distil"},
    )


def test_a_state_with_more_fields_survives_its_tree() -> None:
    split = split_clients({k: OffDiagonal(mean, mean**2, 3) for k, mean in (("a", 0.2), ("b", 0.8))})
    state = StateWithMore(model={"w": torch.ones(2)}, split=split, history=[0.5])
    assert StateWithMore.from_tree(state.to_tree()) == state
    assert StateWithMore.from_tree(StateWithMore(model={}).to_tree()).split is None


# ---------------------------------------------------------------- settings


def test_settings_are_frozen_and_given_by_name_or_whole() -> None:
    method = FedSIR(epochs=2, relabel={"rule": "direction"})
    assert (method.config.epochs, method.config.relabel.rule) == (2, "direction")
    assert FedSIR(method.config).config is method.config
    with pytest.raises(ValidationError):
        method.config.lr = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epocs": 2}, r"There is no setting 'epocs'\. Did you mean 'epochs'\?"),
        ({"lr": float("inf")}, "lr: must be a finite number"),
        ({"optimizer": "lion"}, "optimizer: must be 'adam', 'adamw' or 'sgd'"),
        ({"momentum": 1.0}, "momentum: must be less than 1"),
    ],
)
def test_a_wrong_setting_is_one_line(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as problem:
        FedAvg(**wrong)
    assert "\n" not in str(problem.value)


def test_open_schedules_follow_the_rounds_and_stated_ones_stay() -> None:
    class Group(Settings):
        every: int = per_hundred(20, least=1)
        until: float = per_hundred(7)

    class Config(MethodConfig):
        group: Group = Group()

    filled = Config(name="x").resolved(50).group
    assert (filled.every, filled.until) == (10, pytest.approx(3.5))
    assert Config(name="x").resolved(2).group.every == 1  # at least
    stated = Config(name="x", group=Group(every=3, until=9)).resolved(50).group
    assert (stated.every, stated.until) == (3, 9)


@pytest.mark.parametrize(
    ("settings", "kind", "shown"),
    [
        ({}, torch.optim.Adam, {"weight_decay": 0.1, "lr": 0.2}),
        ({"optimizer": "adamw"}, torch.optim.AdamW, {"weight_decay": 0.1, "lr": 0.2}),
        ({"optimizer": "sgd"}, torch.optim.SGD, {"weight_decay": 0.1, "lr": 0.2, "momentum": 0.9}),
        ({"optimizer": "sgd", "momentum": 0.5}, torch.optim.SGD, {"momentum": 0.5}),
    ],
)
def test_the_optimiser_is_a_setting(settings: dict[str, Any], kind: type, shown: dict[str, float]) -> None:
    made = make_optimizer(FedAvg(**settings).config, [torch.zeros(1, requires_grad=True)], lr=0.2, weight_decay=0.1)
    assert type(made) is kind
    assert {name: made.defaults[name] for name in shown} == shown


# ---------------------------------------------------------------- registry


def test_an_unknown_method_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"There is no method 'fedsr'\. Did you mean 'fedsir'\?"):
        registry.method_class("fedsr")


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_every_row_is_of_its_method(name: str) -> None:
    cls = registry.method_class(name)
    assert cls.name == name
    assert cls.Config is registry.config_class(name)
    assert cls().config.name == name
    assert cls.tasks()
    resolved = cls().resolved(30).config
    assert type(resolved).model_validate(resolved.model_dump(mode="json")).resolved(500) == resolved  # nothing is open


def test_a_package_adds_methods_but_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [SimpleNamespace(name=name, value="fedsir.methods.fedprox:FedProx") for name in ("theirs", "fedavg")]
    offered.append(SimpleNamespace(name="odd", value="collections:OrderedDict"))
    monkeypatch.setattr(registry, "entry_points", lambda group: offered)
    assert registry.method_class("theirs").name == "fedprox"
    assert registry.method_class("fedavg").name == "fedavg"
    with pytest.raises(ConfigError, match="'odd': collections:OrderedDict is not a subclass of"):
        registry.method_class("odd")
    offered.pop()
    assert list(registry.known_methods()) == [*registry.BUILT_IN, "theirs"]


# ---------------------------------------------------------------- FedAvg


def test_fedavg_by_hand() -> None:
    replies = {"a": trained(2.0, 1, 1.0), "b": trained(6.0, 3, 5.0)}
    fed = FakeFederation("ab", lambda task, k: replies[k])
    method = FedAvg()
    state = method.round(1, method.start(fed, weights(0.0)), fed)
    assert fed.asked["train"].payload == {"model": weights(0.0)}  # what it starts from is the initial model
    assert state.model["w"].tolist() == [5.0]  # (2 + 18) / 4
    assert fed.values == {"loss": 4.0}  # (1 + 15) / 4
    assert average_by_samples(replies)["w"].tolist() == [5.0]
    nobody = FakeFederation("ab", lambda task, k: replies[k], absent=("a", "b"))
    assert method.round(2, state, nobody) == state
    assert nobody.values == {"loss": None} and mean_loss({}) is None
