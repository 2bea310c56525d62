"""Where a client's half of a method runs: it turns a call (bytes) into an answer (bytes), keeping nothing in between.

The same host serves the in-process engine and each worker process. It reaches the clients' images and given labels;
true labels are never handed to it.
"""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from fedsir.engines import device_settings
from fedsir.engines.wire import decode, encode
from fedsir.evaluate.accuracy import predict
from fedsir.methods.base import Client, MethodConfig, Server
from fedsir.methods.registry import method_class
from fedsir.models.build import build_model, training_model
from fedsir.models.weights import load_weights
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from fedsir.engines.client_store import ClientStore
    from fedsir.models.config import ModelConfig


@dataclass(frozen=True)
class HostSpec:
    """All a host needs to be set up anew in another process."""

    method: str
    method_config: MethodConfig
    model: ModelConfig
    n_classes: int
    in_channels: int
    seed: int
    device: str
    store: ClientStore

    def __reduce__(self) -> tuple[Any, ...]:
        # The class of the settings may be in a file that only the registry can load: send their values.
        return _host_spec, ({**vars(self), "method_config": self.method_config.model_dump()},)


def _host_spec(fields: dict[str, Any]) -> HostSpec:
    config = method_class(fields["method"]).Config.model_validate(fields["method_config"])
    return HostSpec(**{**fields, "method_config": config})


@dataclass(frozen=True)
class Call:
    """One client's part of an `ask`; `common` is the payload for all, `own` for this client alone."""

    client: str
    task: str
    round: int
    state: bytes
    own: bytes


@dataclass(frozen=True)
class PredictCall:
    """A slice of the test images to predict with the model that is the common payload; no client takes part."""

    start: int
    stop: int


@dataclass(frozen=True)
class ServerCall:
    """A piece of the server's own work that takes a model to run; no client takes part."""

    key: str
    task: str
    round: int
    own: bytes


AnyCall = Call | PredictCall | ServerCall


@dataclass(frozen=True)
class Answer:
    """reply and state as bytes, or the reason of a failure; seconds is the client's computing time."""

    reply: bytes | None
    state: bytes | None
    seconds: float
    failure: str | None = None


class ClientHost:
    """Runs client tasks. One torch thread, so that results do not depend on the machine's cores."""

    def __init__(self, spec: HostSpec) -> None:
        device_settings.prepare(spec.device)
        self._spec = spec
        self._method = method_class(spec.method)(spec.method_config)
        self._template: nn.Module | None = None

    def answer(self, call: AnyCall, common: bytes) -> Answer:
        """Run one task; whatever goes wrong on a client is that client's failure, not the round's."""
        began = time.perf_counter()
        if isinstance(call, PredictCall):
            return Answer(self._predict(call, common), None, time.perf_counter() - began)
        try:
            if isinstance(call, ServerCall):
                return Answer(self._server_work(call, common), None, time.perf_counter() - began)
            client = self.client(call)
            payload: dict[str, Any] = decode(common) | decode(call.own)
            reply = self._method.tasks()[call.task](self._method, client, **payload)
            return Answer(encode(reply), encode(client.state), time.perf_counter() - began)
        except Exception as problem:
            reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
            return Answer(None, None, time.perf_counter() - began, failure=reason)

    def client(self, call: Call) -> Client:
        """Return the client as its half of a method sees it in this call."""
        spec = self._spec
        return Client(
            id=call.client,
            data=spec.store.client_data(call.client),
            state=decode(call.state),
            random=KeyedRandom(spec.seed, ("client", spec.method, call.client, call.round, call.task)),
            new_module=self._new_module,
            device=spec.device,
            public=spec.store.public(),
        )

    def _server_work(self, call: ServerCall, common: bytes) -> bytes:
        payload: dict[str, Any] = decode(common) | decode(call.own)
        return encode(self._method.server_tasks()[call.task](self._method, self._server(call), **payload))

    def _server(self, call: ServerCall) -> Server:
        spec, store = self._spec, self._spec.store
        return Server(
            random=KeyedRandom(spec.seed, ("server", spec.method, call.key, call.round, call.task)),
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
        if self._template is None:
            spec = self._spec
            image_size = spec.store.image_size
            stock = build_model(
                spec.model,
                n_classes=spec.n_classes,
                in_channels=spec.in_channels,
                random=KeyedRandom(spec.seed),
                image_size=image_size,
            )
            self._template = training_model(stock, spec.model.name, image_size)
        return copy.deepcopy(self._template)
