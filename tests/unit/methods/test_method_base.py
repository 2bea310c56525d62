"""The protocol: tasks, state, registry, and FedAvg, the method everybody knows."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from fedsir.errors import ConfigError
from fedsir.methods import registry
from fedsir.methods.base import Federation, Method, Reply, ServerState, client_task
from fedsir.methods.fedavg import FedAvg, average_by_samples, mean_loss
from fedsir.methods.fedsir import FedSIR
from fedsir.methods.settings import MethodConfig
from fedsir.stages.split import OffDiagonal, split_clients


class Counting(Method):
    name = "counting"
    summary = "counts samples"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        replies = fed.ask("count", fed.participants)
        fed.record(total=sum(reply["n"] for reply in replies.values()))
        return state

    @client_task
    def count(self, client: Any) -> Reply:
        return {"n": len(client.data)}

    def not_a_task(self) -> None:
        """Nothing for clients."""


@dataclasses.dataclass(frozen=True)
class StateWithMore(ServerState):
    history: list[float] = dataclasses.field(default_factory=list)


def test_only_marked_functions_are_client_tasks() -> None:
    assert list(Counting.tasks()) == ["count"]
    assert set(FedAvg.tasks()) == {"train"}
    assert set(FedSIR.tasks()) == {"identify", "train_clean", "train_noisy"}


def test_a_method_starts_from_the_initial_model() -> None:
    model = {"w": torch.ones(1)}
    state = Counting(MethodConfig(name="counting")).start(None, model)  # type: ignore[arg-type]
    assert state == ServerState(model=model)


def test_a_method_must_say_what_a_round_is() -> None:
    with pytest.raises(TypeError, match="round"):
        Method(MethodConfig(name="none"))  # type: ignore[abstract]


def test_a_state_with_more_fields_survives_its_tree() -> None:
    split = split_clients({k: OffDiagonal(mean, mean**2, 3) for k, mean in (("a", 0.2), ("b", 0.8))})
    state = StateWithMore(model={"w": torch.ones(2)}, split=split, history=[0.5])
    assert StateWithMore.from_tree(state.to_tree()) == state
    assert StateWithMore.from_tree(StateWithMore(model={}).to_tree()).split is None


def test_settings_are_frozen_and_know_their_keys() -> None:
    config = MethodConfig(name="fedavg")
    with pytest.raises(ValidationError):
        config.lr = 1.0  # type: ignore[misc]
    with pytest.raises(ValidationError):
        MethodConfig(name="fedavg", momentum=0.9)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        MethodConfig(name="fedavg", lr=float("inf"))


def test_an_unknown_method_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"There is no method 'fedsr'\. Did you mean 'fedsir'\?"):
        registry.method_class("fedsr")


@pytest.mark.parametrize("name", sorted(registry.BUILT_IN))
def test_every_built_in_method_says_who_it_is(name: str) -> None:
    cls = registry.method_class(name)
    assert cls.name == name
    assert len(cls.summary) > 10
    assert issubclass(cls.Config, MethodConfig)
    assert cls.tasks()


def test_a_package_adds_methods_but_replaces_none(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = [SimpleNamespace(name=name, value="fedsir.methods.fedprox:FedProx") for name in ("theirs", "fedavg")]
    monkeypatch.setattr(registry, "entry_points", lambda group: offered)
    assert registry.method_class("theirs").name == "fedprox"
    assert registry.method_class("fedavg").name == "fedavg"
    assert list(registry.known_methods()) == [*registry.BUILT_IN, "theirs"]


def test_what_is_no_method_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "odd", "collections:OrderedDict")
    with pytest.raises(ConfigError, match="is not a subclass of"):
        registry.method_class("odd")


# ---------------------------------------------------------------- FedAvg


class OneRound:
    """A federation that answers two trained models, or nothing."""

    participants = ("a", "b")

    def __init__(self, replies: dict[str, Reply]) -> None:
        self.replies = replies
        self.values: dict[str, Any] = {}

    def ask(self, task: str, clients: Any, **payload: Any) -> dict[str, Reply]:
        assert (task, clients, list(payload)) == ("train", ("a", "b"), ["model"])
        return self.replies

    def record(self, **values: Any) -> None:
        self.values = values


REPLIES = {
    "a": {"model": {"w": torch.tensor([2.0])}, "n_samples": 1, "loss": 1.0},
    "b": {"model": {"w": torch.tensor([6.0])}, "n_samples": 3, "loss": 5.0},
}


def test_fedavg_by_hand() -> None:
    fed = OneRound(REPLIES)
    state = FedAvg(MethodConfig(name="fedavg")).round(1, ServerState({"w": torch.zeros(1)}), fed)  # type: ignore[arg-type]
    assert state.model["w"].tolist() == [5.0]  # (2 + 18) / 4
    assert fed.values == {"loss": 4.0}  # (1 + 15) / 4
    assert average_by_samples(REPLIES)["w"].tolist() == [5.0]


def test_fedavg_without_answers_keeps_its_model() -> None:
    fed = OneRound({})
    before = ServerState({"w": torch.ones(1)})
    assert FedAvg(MethodConfig(name="fedavg")).round(1, before, fed) == before  # type: ignore[arg-type]
    assert fed.values == {"loss": None}
    assert mean_loss({}) is None
