"""The core protocol: what a method is, what an engine hands to its server half and to its client half.

A method is one class in one file: `start` and `round` on the server, and client tasks. Server and clients meet only
through `Federation.ask`, which carries a payload to clients and brings replies back, so the same method runs in one
process, in worker processes, or on a real network. What travels back is declared: see `fedsir.methods.replies`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import ValidationError

from fedsir.errors import ConfigError
from fedsir.methods.replies import ClientId, Reply, Weights
from fedsir.methods.settings import MethodConfig
from fedsir.settings import explain
from fedsir.stages.split import ClientSplit

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from fedsir.data.arrays import Counts
    from fedsir.data.client import ClientData
    from fedsir.data.preprocessing import Preprocessing
    from fedsir.randomness import KeyedRandom

RESIDENT_BYTES = 2**29  # images of one client up to this size are put on an accelerator whole
DROPPED_OUT = "dropped out"
"""The reason in `Federation.failures` of a client that was away this round, which is nobody's fault."""
Payload = dict[str, Any]
"""What travels: a tree of dicts and lists with tensors, numbers, strings, booleans and None at its leaves."""


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


R = TypeVar("R", bound=Reply)


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
        task: Callable[..., R],
        clients: Iterable[ClientId],
        *,
        each: Mapping[ClientId, Payload] | None = None,
        **payload: Any,
    ) -> Mapping[ClientId, R]:
        """Send `payload` to all `clients` (and `each[client]` to one), run their task, return replies by client.

        Replies come in federation order. A client that fails, or whose reply is not what the task declares, is missing
        from them and stands in `failures`. Many large replies may wait on disk: read them one after the other rather
        than collect them.
        """

    def compute(
        self, task: Callable[..., R], each: Mapping[str, Payload] | None = None, **payload: Any
    ) -> Mapping[str, R]:
        """Run a server task where the engine computes, once per entry of `each` (once under "" without); by key."""

    def reject(self, client: ClientId, reason: str) -> None:
        """Note that a client's answer could not be used; it then stands in `failures`."""

    def record(self, **values: Any) -> None:
        """Write values (JSON) into this round's line of metrics.jsonl."""


@dataclass(kw_only=True)
class Place:
    """Where a task runs: random is its own stream, public are unlabelled images that everybody has."""

    random: KeyedRandom
    new_module: Callable[[], nn.Module]
    device: str
    public: Tensor | None = None  # (p, channels, h, w) uint8, on the CPU

    def module(self, weights: Weights) -> nn.Module:
        """Return a model of this federation's architecture with these weights, on this device."""
        from fedsir.models.weights import load_weights

        module = self.new_module()
        load_weights(module, weights)
        return module.to(self.device)


@dataclass(kw_only=True)
class Client(Place):
    """What an engine hands to the client half.

    state survives rounds and never leaves the client: tensors, or trees of them. `state["corrected_labels"]`, (n,)
    int64, is where a method that repairs labels keeps them; `state["model"]` is the client's own model if the method
    has personal ones. random is derived from (seed, method, client, round, task).
    """

    id: ClientId
    data: ClientData
    state: dict[str, Any]

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


@dataclass(kw_only=True)
class Server(Place):
    """What an engine hands to a server task; random is derived from (seed, method, key, round, task)."""

    preprocessing: Preprocessing  # as in `ClientData`


Task = TypeVar("Task", bound=Callable[..., Reply])


def client_task(function: Task) -> Task:
    """Mark a method's function as something the server may ask clients for: (self, client, **payload) → reply."""
    function.is_client_task = True  # type: ignore[attr-defined]
    return function


def server_task(function: Task) -> Task:
    """Mark a method's function as work of the server that runs models: (self, server, **payload) → reply."""
    function.is_server_task = True  # type: ignore[attr-defined]
    return function


C = TypeVar("C", bound=MethodConfig)
S = TypeVar("S", bound=ServerState)


class Method(ABC, Generic[C, S]):
    """One way to learn from clients whose labels may be wrong.

    An instance knows its settings and nothing else: what it learns goes into the state that it returns.
    """

    name: ClassVar[str]
    summary: ClassVar[str] = ""
    Config: ClassVar[type[MethodConfig]] = MethodConfig
    State: ClassVar[type[ServerState]] = ServerState
    is_personal: ClassVar[bool] = False  # each client has a model of its own in state["model"]; scores are their means
    file: ClassVar[str | None] = None  # "path/to/file.py:Class", for a method that was loaded from a file

    def __init__(self, config: C | None = None, **settings: Any) -> None:
        """Take settings whole, or by name: `FedSIR(epochs=2, relabel={"rule": "direction"})`."""
        from fedsir.methods.own_code import check_method

        check_method(type(self))
        try:
            self.config: C = self.Config(name=self.name, **settings) if config is None else config  # type: ignore[assignment]
        except ValidationError as problem:
            raise ConfigError(explain(problem, self.Config, "")) from None

    def resolved(self, rounds: int, *, is_pretrained: bool = False) -> Self:
        """Return the method with every setting that was left open filled in, for so many rounds of such a model."""
        return type(self)(self.config.resolved(rounds).fitted(is_pretrained=is_pretrained))

    def check(self, counts: Counts) -> None:
        """Raise a MethodError if data like these can never do; asked before round 0, where somebody can tell.

        counts : (n_clients, n_classes) samples by given label
        """
        del counts  # a method without needs takes what comes

    def start(self, fed: Federation, model: Weights) -> S:
        """Return the state before round 1, from the common initial model."""
        del fed
        return self.State(model=model)  # type: ignore[return-value]

    @abstractmethod
    def round(self, t: int, state: S, fed: Federation) -> S:
        """Return the state after round t = 1, 2, …"""

    def optimizer(self, parameters: Iterable[Tensor], *, lr: float, weight_decay: float) -> Optimizer:
        """Return a fresh optimiser, as the settings say; override it to train with one of your own."""
        from fedsir.methods.local_training import make_optimizer

        return make_optimizer(self.config, parameters, lr=lr, weight_decay=weight_decay)

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

    def __reduce__(self) -> tuple[Any, ...]:
        # A class from a file, and its settings' class, are found by the file alone: another process loads it anew.
        if self.file is not None:
            from fedsir.methods.method_file import rebuilt

            return rebuilt, (self.file, self.config.model_dump())
        return type(self), (self.config,)


AnyMethod = Method[Any, Any]
