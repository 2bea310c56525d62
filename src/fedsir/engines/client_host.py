"""Where a client's half of a method runs: it turns a call (bytes) into an answer (bytes), keeping nothing in between.

The same host serves the in-process engine and each worker process. It reaches the clients' images and given labels;
true labels are never handed to it.
"""

from __future__ import annotations

import copy
import pickle
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsir.engines.base import Answer, AnyCall, Call, PredictCall, ServerCall
from fedsir.engines.device_settings import drawing_from
from fedsir.engines.wire import decode, encode
from fedsir.errors import ConfigError
from fedsir.evaluate.accuracy import predict
from fedsir.methods.base import Client, Server
from fedsir.methods.own_code import fault_in, place_of, said
from fedsir.methods.reply_check import ReplyFault, reply_type, to_tree
from fedsir.models.weights import load_weights
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from torch import nn

    from fedsir.engines.client_store import ClientStore
    from fedsir.methods.base import AnyMethod
    from fedsir.methods.replies import Reply


@dataclass(frozen=True)
class HostSpec:
    """All a host needs to be set up anew in another process.

    template : a model of the federation's architecture, as clients train it; its weights do not matter
    """

    method: AnyMethod
    template: nn.Module
    seed: int
    device: str
    store: ClientStore

    def check_workers_can_have_it(self) -> None:
        """Refuse a method or model whose class another process could not import."""
        try:
            pickle.dumps((self.method, self.template))
        except (pickle.PicklingError, AttributeError, TypeError) as problem:
            raise ConfigError(
                f"Worker processes cannot import this method or model ({problem}): put its class into a file that can "
                "be imported, or use workers=1."
            ) from None


class ClientHost:
    """Runs client tasks, in a process that `device_settings` has prepared."""

    def __init__(self, spec: HostSpec) -> None:
        self._spec = spec

    def answer(self, call: AnyCall, common: bytes, state: bytes) -> Answer:
        """Run one task; whatever goes wrong on a client is that client's failure, not the round's."""
        began, reply, kept, failure = time.perf_counter(), None, None, None
        method = self._spec.method
        try:
            if isinstance(call, PredictCall):
                reply = self._predict(call, common)
            elif isinstance(call, ServerCall):
                payload = decode(common) | decode(call.own)
                reply = self._run(method.server_tasks()[call.task], self._server(call), payload)
            else:
                client, payload = self.client(call, state), decode(common) | decode(call.own)
                reply, kept = self._run(method.tasks()[call.task], client, payload), encode(client.state)
        except ReplyFault as fault:
            reply, failure = None, str(fault)
        except Exception as problem:
            reply, failure = None, fault_in(type(method), problem) or said(problem)
        return Answer(reply, kept, time.perf_counter() - began, failure)

    def client(self, call: Call, state: bytes) -> Client:
        """Return the client as its half of a method sees it in this call."""
        spec = self._spec
        return Client(
            id=call.client,
            data=spec.store.client_data(call.client),
            state=decode(state),
            random=KeyedRandom(spec.seed, ("client", spec.method.name, call.client, call.round, call.task)),
            new_module=self._new_module,
            device=spec.device,
            public=spec.store.public(),
        )

    def _run(self, task: Any, where: Client | Server, payload: dict[str, Any]) -> bytes:
        with drawing_from(where.random.derive("torch"), self._spec.device):
            reply: Reply = task(self._spec.method, where, **payload)
        if not isinstance(reply, declared := reply_type(task)):
            found = f"{task.__name__} returned {type(reply).__name__}, but declares {declared.__name__}"
            raise ReplyFault(f"{place_of(task)}{found}")
        return encode(to_tree(reply))

    def _server(self, call: ServerCall) -> Server:
        spec, store = self._spec, self._spec.store
        return Server(
            random=KeyedRandom(spec.seed, ("server", spec.method.name, call.key, call.round, call.task)),
            new_module=self._new_module,
            device=spec.device,
            preprocessing=store.preprocessing,
            public=store.public(),
        )

    def _predict(self, call: PredictCall, common: bytes) -> bytes:
        store, device = self._spec.store, self._spec.device
        module = self._new_module()
        load_weights(module, decode(common))
        predicted = predict(
            module.to(device),
            store.test_images(call.start, call.stop),
            store.preprocessing.normalise,
            device=device,
        )
        return encode({"predicted": predicted})

    def _new_module(self) -> nn.Module:
        return copy.deepcopy(self._spec.template)
