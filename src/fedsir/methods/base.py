"""The core protocol: what a method is, what an engine hands to its server half and to its client half.

A method is one class in one file: a `Config`, a `State`, `start` and `round` on the server, and client tasks. Server
and clients meet only through `Federation.ask`, which carries a payload to clients and brings replies back, so the same
method runs in one process, in worker processes, or on a real network.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from fedsir.methods.workload import Size, Work
from fedsir.stages.split import ClientSplit

if TYPE_CHECKING:
    from torch import Tensor, nn

    from fedsir.data.arrays import Counts
    from fedsir.data.client import ClientData
    from fedsir.data.preprocessing import Preprocessing
    from fedsir.randomness import KeyedRandom

RESIDENT_BYTES = 2**29  # images of one client up to this size are put on an accelerator whole
DROPPED_OUT = "dropped out"
"""The reason in `Federation.failures` of a client that was away this round, which is nobody's fault."""
ClientId = str
Weights = dict[str, "Tensor"]
Payload = dict[str, Any]
"""What travels: a tree of dicts and lists with tensors, numbers, strings, booleans and None at its leaves."""
Reply = Mapping[str, Any]
"""A payload on its way back."""


class Settings(BaseModel):
    """A frozen group of settings that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MethodConfig(Settings):
    """The method's name and the settings of local training that every method has."""

    name: str = Field(description="which method")
    epochs: int = Field(1, ge=1, description="local epochs per round (E in the paper)")
    batch_size: int = Field(64, ge=2, description="samples per step (B)")
    lr: float = Field(3e-4, gt=0, description="Adam's learning rate")
    weight_decay: float = Field(5e-4, ge=0, description="L2 penalty inside Adam (coupled, not AdamW)")

    def scaled_to(self, rounds: int) -> Self:
        """Return the settings with every schedule left open filled in for a run of `rounds` rounds."""
        del rounds  # no schedule at this level
        return self


@dataclass(frozen=True)
class ServerState:
    """All that a server remembers between rounds; methods add fields by subclassing.

    Fields must be payload trees, except `split`. Whatever a method keeps elsewhere is lost on resume.
    """

    model: Weights
    split: ClientSplit | None = None  # who is noisy, for methods that find out

    def to_tree(self) -> Payload:
        """Return the state as a payload tree."""
        tree = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        tree["split"] = None if self.split is None else dataclasses.asdict(self.split)
        return tree

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Self:
        """Rebuild the state from `to_tree`."""
        split = tree["split"]
        return cls(**{**tree, "split": None if split is None else ClientSplit.from_tree(split)})


class Federation(Protocol):
    """What an engine hands to the server half."""

    @property
    def clients(self) -> Sequence[ClientId]:
        """Everybody, in federation order."""

    @property
    def participants(self) -> Sequence[ClientId]:
        """Those who take part in this round, in federation order."""

    @property
    def failures(self) -> Mapping[ClientId, str]:
        """Clients that did not answer this round, with the reason."""

    @property
    def random(self) -> KeyedRandom:
        """The server's own stream for this round, derived from (seed, "server", round)."""

    def ask(
        self,
        task: str,
        clients: Iterable[ClientId],
        *,
        each: Mapping[ClientId, Payload] | None = None,
        **payload: Any,
    ) -> Mapping[ClientId, Reply]:
        """Send `payload` to all `clients` (and `each[client]` to one), run their task, return replies by client.

        Replies come in federation order. A client that fails is missing from them and stands in `failures`. Many
        large replies may wait on disk: read them one after the other rather than collect them.
        """

    def compute(self, task: str, each: Mapping[str, Payload] | None = None, **payload: Any) -> Mapping[str, Reply]:
        """Run a server task where the engine computes, once per entry of `each` (once under "" without); by key."""

    def reject(self, client: ClientId, reason: str) -> None:
        """Note that a client's answer could not be used; it then stands in `failures`."""

    def record(self, **values: Any) -> None:
        """Write values (JSON) into this round's line of metrics.jsonl."""


@dataclass
class Client:
    """What an engine hands to the client half.

    state survives rounds and never leaves the client: tensors, or trees of them. `state["corrected_labels"]`, (n,)
    int64, is where a method that repairs labels keeps them; `state["model"]` is the client's own model if the method
    has personal ones. random is derived from (seed, method, client, round, task).
    """

    id: ClientId
    data: ClientData
    state: dict[str, Any]
    random: KeyedRandom
    new_module: Callable[[], nn.Module]
    device: str
    public: Tensor | None = None  # unlabelled images that everybody has, (p, channels, h, w) uint8, on the CPU

    def module(self, weights: Weights) -> nn.Module:
        """Return a model of this federation's architecture with these weights, on this client's device."""
        return _loaded(self.new_module(), weights, self.device)

    @cached_property
    def images(self) -> Tensor:
        """The client's images, (n, channels, h, w) uint8: on its device, or left on the CPU if they are very many."""
        images = self.data.images
        return images.to(self.device) if images.nbytes <= RESIDENT_BYTES else images

    @property
    def labels(self) -> Tensor:
        """The labels to train on, (n,): corrected where a method has corrected them, else given."""
        corrected: Tensor | None = self.state.get("corrected_labels")
        return self.data.labels if corrected is None else corrected

    @property
    def n_corrected(self) -> int:
        """How many labels to train on are not the given ones."""
        return int((self.labels != self.data.labels).sum())


@dataclass
class Server:
    """What an engine hands to a server task: a place to run models on public images.

    preprocessing : as in `ClientData`; random is derived from (seed, method, key, round, task)
    """

    random: KeyedRandom
    new_module: Callable[[], nn.Module]
    device: str
    preprocessing: Preprocessing
    public: Tensor | None  # (p, channels, h, w) uint8, on the CPU

    def module(self, weights: Weights) -> nn.Module:
        """Return a model of this federation's architecture with these weights, on the server's device."""
        return _loaded(self.new_module(), weights, self.device)


def _loaded(module: nn.Module, weights: Weights, device: str) -> nn.Module:
    from fedsir.models.weights import load_weights

    load_weights(module, weights)
    return module.to(device)


Task = TypeVar("Task", bound=Callable[..., Reply])


def client_task(function: Task) -> Task:
    """Mark a method's function as something the server may ask clients for: (self, client, **payload) → reply."""
    function.is_client_task = True  # type: ignore[attr-defined]
    return function


def server_task(function: Task) -> Task:
    """Mark a method's function as work of the server that runs models: (self, server, **payload) → reply."""
    function.is_server_task = True  # type: ignore[attr-defined]
    return function


class Method(ABC):
    """One way to learn from clients whose labels may be wrong.

    An instance knows its settings and nothing else: what it learns goes into the state that it returns.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    State: ClassVar[type[ServerState]] = ServerState
    needs_public: ClassVar[bool] = False  # whether it cannot do without data.public
    is_personal: ClassVar[bool] = False  # each client has a model of its own in state["model"]; scores are their means

    def __init__(self, config: MethodConfig) -> None:
        self.config: Any = config

    def check(self, counts: Counts) -> None:
        """Raise a MethodError if data like these can never do; asked before round 0, where somebody can tell.

        counts : (n_clients, n_classes) samples by given label
        """
        del counts  # a method without needs takes what comes

    def start(self, fed: Federation, model: Weights) -> ServerState:
        """Return the state before round 1, from the common initial model."""
        del fed
        return self.State(model=model)

    @abstractmethod
    def round(self, t: int, state: Any, fed: Federation) -> ServerState:
        """Return the state after round t = 1, 2, …"""

    def start_epochs(self) -> float:
        """Return about how many passes of plain training over ALL clients' data `start` costs, for estimates."""
        return 0.0

    def equivalent_epochs(self, rounds: int) -> float:
        """Return about how many passes of plain training over the participants' data the rounds cost."""
        return float(rounds * self.config.epochs)

    def work(self, size: Size) -> list[Work]:
        """Return about what a run costs beside its tests: here one call per participant and round, all at once."""
        start = self.start_epochs()
        return [
            Work(start * size.n_samples, size.n_clients if start > 0 else 0, size.n_clients),
            Work(
                self.equivalent_epochs(size.rounds) * size.n_drawn,
                size.rounds * size.n_participants,
                size.n_participants,
            ),
        ]

    @classmethod
    def tasks(cls) -> dict[str, Callable[..., Reply]]:
        """Return the client tasks by name."""
        return cls._marked("is_client_task")

    @classmethod
    def server_tasks(cls) -> dict[str, Callable[..., Reply]]:
        """Return the server tasks by name."""
        return cls._marked("is_server_task")

    @classmethod
    def _marked(cls, mark: str) -> dict[str, Callable[..., Reply]]:
        members = {name: getattr(cls, name) for name in dir(cls) if not name.startswith("_")}
        return {name: member for name, member in members.items() if hasattr(member, mark)}
