"""The federation as the server half sees it: who takes part, who answered what, what it cost on the wire."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedsir.engines.base import Call, PredictCall, ServerCall
from fedsir.engines.replies import Replies
from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT, Payload
from fedsir.methods.own_code import place_of
from fedsir.methods.replies import ClientId, Reply, Weights
from fedsir.methods.reply_check import NOT_FINITE, Form, ReplyFault, read_reply, reply_type
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from pathlib import Path

    from fedsir.engines.base import Engine
    from fedsir.methods.base import AnyMethod

_EMPTY = encode({})
TEST_SLICE = 1000  # test images per call: enough to share among workers, few enough to be worth a call
DIVERGED = "Training diverged: lower method.lr."
R = TypeVar("R", bound=Reply)


@dataclass
class RoundLog:
    """What happened in one round, for metrics.jsonl."""

    values: dict[str, Any] = field(default_factory=dict)
    failures: dict[ClientId, str] = field(default_factory=dict)
    bytes_up: dict[ClientId, int] = field(default_factory=dict)
    bytes_down: dict[ClientId, int] = field(default_factory=dict)
    seconds: dict[ClientId, float] = field(default_factory=dict)
    answered: set[ClientId] = field(default_factory=set)  # at least one ask
    broken: set[ClientId] = field(default_factory=set)  # failed, or sent rubbish, at least once


@dataclass(frozen=True)
class AskProgress:
    """How far an `ask` has come."""

    round: int
    task: str
    n_done: int
    n_asked: int


class EngineFederation:
    """A `Federation` on top of any engine.

    Parameters
    ----------
    method : whose tasks are asked for
    participation : share of the clients drawn for each round
    dropout : probability that a client drawn for a round does not answer in it
    form : what every reply must fit
    spill_folder : where replies wait that do not fit into memory; None is the system's place for temporary files
    on_answer : called after each answer
    """

    def __init__(
        self,
        engine: Engine,
        clients: Sequence[ClientId],
        method: AnyMethod,
        *,
        seed: int,
        participation: float,
        dropout: float,
        form: Form,
        spill_folder: Path | None = None,
        on_answer: Callable[[AskProgress], None] | None = None,
    ) -> None:
        self._engine, self._method = engine, method
        self._position = {client: i for i, client in enumerate(clients)}
        self._random = KeyedRandom(seed)
        self._participation, self._dropout = participation, dropout
        self._form = form
        self._spill_folder = spill_folder
        self._on_answer = on_answer
        self.clients: Sequence[ClientId] = tuple(clients)
        self.participants: Sequence[ClientId] = self.clients
        self.log = RoundLog()
        self._round = 0

    @property
    def failures(self) -> Mapping[ClientId, str]:
        return self.log.failures

    @property
    def random(self) -> KeyedRandom:
        return self._random.derive("server", self._round)

    def begin_round(self, t: int) -> None:
        """Draw the participants of round t and open a fresh log; round 0 is the start, with everybody."""
        self._round = t
        self.log = RoundLog()
        self.participants = self.clients
        if t > 0 and self._participation < 1:
            n_drawn = n_participants(self._participation, len(self.clients))
            generator = self._random.derive("participation", t).for_numpy()
            drawn = generator.choice(len(self.clients), size=n_drawn, replace=False)
            self.participants = tuple(self.clients[i] for i in sorted(drawn))

    def ask(
        self,
        task: Callable[..., R],
        clients: Iterable[ClientId],
        *,
        each: Mapping[ClientId, Payload] | None = None,
        **payload: Any,
    ) -> Mapping[ClientId, R]:
        self._check_task(task, "ask", "client_task", self._method.tasks())
        present = []
        for client in sorted(set(clients), key=self._position.__getitem__):
            if self._drops_out(client):
                self.reject(client, DROPPED_OUT)
            else:
                present.append(client)
        common = encode(payload)
        calls = [
            Call(client, task.__name__, self._round, encode(each[client]) if each and client in each else _EMPTY)
            for client in present
        ]
        read = self._reader(task)
        replies = Replies(present, read, folder=self._spill_folder)
        for n_done, (call, answer) in enumerate(self._engine.run(calls, common), 1):
            assert isinstance(call, Call)
            self._count(self.log.bytes_down, call.client, len(common) + (len(call.own) if each else 0))
            self._count(self.log.seconds, call.client, answer.seconds)
            if self._on_answer:
                self._on_answer(AskProgress(self._round, call.task, n_done, len(calls)))
            if answer.reply is None:
                self._break(call.client, answer.failure or "no answer")
                continue
            self._count(self.log.bytes_up, call.client, len(answer.reply))
            try:
                reply = read(answer.reply)
            except (WireError, ReplyFault) as fault:
                self._break(call.client, f"{place_of(task)}{fault}")
                continue
            self._engine.keep(call, answer)
            self.log.answered.add(call.client)
            replies.put(call.client, answer.reply, reply)
        return replies

    def compute(
        self, task: Callable[..., R], each: Mapping[str, Payload] | None = None, **payload: Any
    ) -> Mapping[str, R]:
        self._check_task(task, "compute", "server_task", self._method.server_tasks())
        own = {"": {}} if each is None else each
        calls = [ServerCall(key, task.__name__, self._round, encode(value)) for key, value in own.items()]
        read, done = self._reader(task), {}
        for call, answer in self._engine.run(calls, encode(payload)):
            assert isinstance(call, ServerCall)
            try:
                if answer.reply is None:
                    raise ReplyFault(answer.failure)
                done[call.key] = read(answer.reply)
            except ReplyFault as fault:
                raise MethodError(
                    f"Round {self._round}: the server's task {task.__name__!r} failed: {fault}."
                ) from None
        return {key: done[key] for key in own}

    def _check_task(self, task: Any, call: str, mark: str, known: Mapping[str, Any]) -> None:
        """Refuse what is not a task of this method: a client finds its half by name."""
        if isinstance(task, str):
            raise TypeError(f"pass the task itself: fed.{call}(self.{task}, …)")
        function = getattr(task, "__func__", task)
        name = getattr(function, "__name__", repr(task))
        if known.get(name) is not function:
            raise TypeError(f"fed.{call}: {name} is not a task of {self._method.name} that is marked with @{mark}")

    def _reader(self, task: Callable[..., R]) -> Callable[[bytes], R]:
        declared = reply_type(task)
        return lambda data: cast("R", read_reply(declared, decode(data), self._form))

    def end_round(self) -> None:
        """Stop the run if everybody who was there failed: going on would change nothing and hide the reason.

        A round in which all dropped out, or some failed, is an ordinary one. A client that answered one ask and failed
        at another has failed.
        """
        broken = self.log.broken
        if broken and self.log.answered <= broken:
            first = min(broken, key=self._position.__getitem__)
            reason = self.failures[first]
            advice = f" {DIVERGED}" if reason.endswith(NOT_FINITE) else ""
            raise MethodError(
                f"Round {self._round}: all {len(broken)} clients failed; client {first}: {reason}.{advice}"
            )

    def predict(self, model: Weights, n_test: int) -> NDArray[np.int64]:
        """Return the class that `model` gives each test image, (n_test,); the server's own work, no client's."""
        calls = [PredictCall(start, min(start + TEST_SLICE, n_test)) for start in range(0, n_test, TEST_SLICE)]
        predicted = np.empty(n_test, dtype=np.int64)
        for call, answer in self._engine.run(calls, encode(model)):
            if answer.reply is None:
                raise MethodError(f"The model could not be evaluated: {answer.failure}.")
            assert isinstance(call, PredictCall)
            predicted[call.start : call.stop] = decode(answer.reply)["predicted"].numpy()
        return predicted

    def reject(self, client: ClientId, reason: str) -> None:
        self.log.failures[client] = reason

    def record(self, **values: Any) -> None:
        self.log.values.update(values)

    def _break(self, client: ClientId, reason: str) -> None:
        self.reject(client, reason)
        self.log.broken.add(client)

    def _drops_out(self, client: ClientId) -> bool:
        if self._dropout == 0:
            return False
        return bool(self._random.derive("dropout", self._round, client).for_numpy().random() < self._dropout)

    @staticmethod
    def _count(where: dict[ClientId, Any], client: ClientId, amount: float) -> None:
        where[client] = where.get(client, 0) + amount


def n_participants(participation: float, n_clients: int) -> int:
    """Return how many clients are drawn for a round: their share, halves rounded up, and at least one."""
    return max(1, math.floor(participation * n_clients + 0.5))
