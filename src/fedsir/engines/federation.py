"""The federation as the server half sees it: who takes part, who answered what, what it cost on the wire."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedsir.engines.client_host import Call, PredictCall, ServerCall
from fedsir.engines.replies import Replies
from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT, ClientId, Payload, Weights
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from pathlib import Path

    from fedsir.engines.local import Engine

_EMPTY = encode({})
TEST_SLICE = 1000  # test images per call: enough to share among workers, few enough to be worth a call
NOT_FINITE = "is not finite"
DIVERGED = "Training diverged: lower method.lr."


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


class EngineFederation:
    """A `Federation` on top of any engine.

    Parameters
    ----------
    participation : share of the clients drawn for each round
    dropout : probability that a client drawn for a round does not answer in it
    initial_model : every model in a reply must have these names and shapes
    client_states : client → state as bytes, of those that keep any; survives rounds, belongs into the checkpoint
    spill_folder : where replies wait that do not fit into memory; None is the system's place for temporary files
    """

    def __init__(
        self,
        engine: Engine,
        clients: Sequence[ClientId],
        *,
        seed: int,
        participation: float,
        dropout: float,
        initial_model: Weights,
        client_states: dict[ClientId, bytes] | None = None,
        spill_folder: Path | None = None,
    ) -> None:
        self._engine = engine
        self._position = {client: i for i, client in enumerate(clients)}
        self._random = KeyedRandom(seed)
        self._participation = participation
        self._dropout = dropout
        self._form = _form(initial_model)
        self._spill_folder = spill_folder
        self.client_states = client_states if client_states is not None else {}
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
        task: str,
        clients: Iterable[ClientId],
        *,
        each: Mapping[ClientId, Payload] | None = None,
        **payload: Any,
    ) -> Replies:
        asked = sorted(set(clients), key=self._position.__getitem__)
        present = []
        for client in asked:
            if self._drops_out(client):
                self.reject(client, DROPPED_OUT)
            else:
                present.append(client)
        common = encode(payload)
        calls = [
            Call(
                client=client,
                task=task,
                round=self._round,
                state=self.client_states.get(client, _EMPTY),
                own=encode(each[client]) if each and client in each else _EMPTY,
            )
            for client in present
        ]
        replies = Replies(present, folder=self._spill_folder)
        for call, answer in self._engine.run(calls, common):
            assert isinstance(call, Call)
            self._count(self.log.bytes_down, call.client, len(common) + (len(call.own) if each else 0))
            self._count(self.log.seconds, call.client, answer.seconds)
            if answer.reply is None or answer.state is None:
                self.reject(call.client, answer.failure or "no answer")
                self.log.broken.add(call.client)
                continue
            self._count(self.log.bytes_up, call.client, len(answer.reply))
            reply, fault = self._read(answer.reply)
            if fault:
                self.reject(call.client, fault)
                self.log.broken.add(call.client)
                continue
            if answer.state == _EMPTY:  # nothing to remember: no entry in every checkpoint to come
                self.client_states.pop(call.client, None)
            else:
                self.client_states[call.client] = answer.state
            self.log.answered.add(call.client)
            replies.put(call.client, answer.reply, reply)
        return replies

    def compute(
        self, task: str, each: Mapping[str, Payload] | None = None, **payload: Any
    ) -> dict[str, dict[str, Any]]:
        own = {"": {}} if each is None else each
        calls = [ServerCall(key, task, self._round, encode(value)) for key, value in own.items()]
        done: dict[str, dict[str, Any]] = {}
        for call, answer in self._engine.run(calls, encode(payload)):
            assert isinstance(call, ServerCall)
            if answer.reply is None:
                raise MethodError(f"Round {self._round}: the server's task {task!r} failed: {answer.failure}.")
            done[call.key] = decode(answer.reply)
        return {key: done[key] for key in own}

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

    def _drops_out(self, client: ClientId) -> bool:
        if self._dropout == 0:
            return False
        return bool(self._random.derive("dropout", self._round, client).for_numpy().random() < self._dropout)

    def _read(self, data: bytes) -> tuple[dict[str, Any], str | None]:
        """Return a reply and what is wrong with it: a client may answer rubbish without failing."""
        try:
            reply = decode(data)
        except WireError as problem:
            return {}, str(problem)
        if not isinstance(reply, dict):
            return {}, "its answer is no mapping"
        if "model" in reply and _form(reply["model"]) != self._form:
            return reply, "its model has other names, types or shapes than the one it was sent"
        return reply, _not_finite(reply, "its answer")

    @staticmethod
    def _count(where: dict[ClientId, Any], client: ClientId, amount: float) -> None:
        where[client] = where.get(client, 0) + amount


def n_participants(participation: float, n_clients: int) -> int:
    """Return how many clients are drawn for a round: their share, halves rounded up, and at least one."""
    return max(1, math.floor(participation * n_clients + 0.5))


def _form(model: Any) -> dict[str, tuple[Any, ...]] | None:
    """Return name → type and shape of a model's tensors; None for what is no model."""
    if not isinstance(model, dict) or not all(isinstance(tensor, Tensor) for tensor in model.values()):
        return None
    return {name: (tensor.dtype, tensor.shape) for name, tensor in model.items()}


def _not_finite(node: Any, where: str) -> str | None:
    """Return the place of the first tensor with a NaN or infinite entry; plain numbers may be NaN (undefined)."""
    if isinstance(node, Tensor):
        is_fine = not node.is_floating_point() or bool(node.isfinite().all())
        return None if is_fine else f"{where} {NOT_FINITE}"
    children = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    faults = (_not_finite(child, f"{where}: {key}") for key, child in children)
    return next((fault for fault in faults if fault), None)
