"""The loop: a method, a federation and a model, round by round. Knows no disk and no terminal."""

from __future__ import annotations

import copy
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from fedsir.data.from_arrays import images_of_form
from fedsir.engines.client_host import HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.device_settings import drawing_from, prepared
from fedsir.engines.federation import AskProgress, EngineFederation
from fedsir.engines.local import local_engine
from fedsir.engines.wire import decode
from fedsir.errors import FedsirError, MethodError
from fedsir.evaluate.accuracy import predict
from fedsir.methods.own_code import fault_in, place_of
from fedsir.methods.reply_check import Form
from fedsir.models.build import exported_weights
from fedsir.models.weights import load_weights
from fedsir.simulation.metrics import Metrics

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import nn

    from fedsir.data.federation import FederatedData
    from fedsir.engines.base import Engine
    from fedsir.methods.base import AnyMethod, ServerState
    from fedsir.methods.replies import ClientId, Weights
    from fedsir.models.initial import InitialModel
    from fedsir.stages.split import ClientSplit

Listener = Callable[["Step"], None]
"""Called after each round. One that has a method `answered` is also told how far a round has come (`AskProgress`)."""


@dataclass(frozen=True, eq=False)
class Step:
    """A round that was done.

    Attributes
    ----------
    round : 0 is the start, where some methods find noisy clients
    state : what the server remembers now
    metrics : this round's row of the table; listeners may add to it
    simulation : the simulation that took the step
    """

    round: int
    state: ServerState
    metrics: dict[str, Any]
    simulation: Simulation

    @property
    def accuracy(self) -> float | None:
        """Test accuracy of the model; None in rounds that are not evaluated."""
        return self.metrics.get("accuracy")

    @property
    def split(self) -> ClientSplit | None:
        """Who is clean and who is noisy, for methods that find out."""
        return self.state.split

    @property
    def model(self) -> nn.Module:
        """The model after this round, in evaluation mode."""
        return self.simulation.module(self.simulation.exported(self.state.model))


@dataclass(frozen=True)
class Snapshot:
    """All that a simulation needs to go on after a round to the same bytes; client states as they are on the wire."""

    round: int
    state: ServerState
    client_states: dict[ClientId, bytes]
    seconds: float


class Simulation(Iterator[Step]):
    """A federation that learns: each step is a round. Stop whenever you like, and go on by iterating again.

    Parameters
    ----------
    data, method, model : who learns, how, and from what first model
    rounds : rounds of training after round 0
    participation : share of the clients drawn for each round
    dropout : probability that a client drawn for a round does not answer in it
    workers : processes that compute; the result does not depend on it
    open_engine : makes the engine from a `HostSpec`; the local one by default
    listeners : called after each round, in this order
    begin_after : a snapshot to go on from
    spill_folder : where large replies wait that do not fit into memory
    """

    def __init__(
        self,
        data: FederatedData,
        method: AnyMethod,
        model: InitialModel,
        *,
        rounds: int,
        seed: int = 0,
        participation: float = 1.0,
        dropout: float = 0.0,
        workers: int = 1,
        device: str = "cpu",
        open_engine: Callable[[HostSpec], Engine] | None = None,
        listeners: Sequence[Listener] = (),
        begin_after: Snapshot | None = None,
        spill_folder: Path | None = None,
    ) -> None:
        self.data, self.rounds, self.seed = data, rounds, seed
        self.method = method.resolved(rounds, is_pretrained=model.is_pretrained)
        self.method.check(data.counts())
        self.metrics = Metrics()
        self._initial, self._device = model, device
        self._listeners = list(listeners)
        self._draws = {"seed": seed, "participation": participation, "dropout": dropout}
        self._form = Form.of(model.weights, classes=data.n_classes, features=model.n_features)
        self._spec = HostSpec(self.method, model.module, seed, device, ClientStore.of(data))
        self._open_engine = open_engine or (lambda spec: local_engine(spec, workers))
        self._engine: Engine | None = None
        self._begin_after, self._spill_folder = begin_after, spill_folder
        self._next = 0 if begin_after is None else begin_after.round + 1
        self._state = None if begin_after is None else begin_after.state
        self._seconds = 0.0 if begin_after is None else begin_after.seconds
        self._states = {} if begin_after is None else dict(begin_after.client_states)
        self._step_began: float | None = None
        self._predicted: tuple[ServerState, NDArray[np.int64]] | None = None

    # ------------------------------------------------------------------ the loop

    def __next__(self) -> Step:
        if self._next > self.rounds:
            self.close()
            raise StopIteration
        self._step_began = time.perf_counter()
        try:
            with prepared(self._device):
                step = self._step(self._next)
                # From here on the round is done, whatever a listener does; what listeners add goes into the same row.
                self._next += 1
                self.metrics.append(step.metrics)
                for listener in self._listeners:
                    listener(step)
                self._seconds = self.seconds
        finally:
            self._step_began = None
        return step

    def __repr__(self) -> str:
        return f"<Simulation of {self.method.name} on {self.data.name}: {self._next} of {self.rounds + 1} steps taken>"

    def run(self) -> Simulation:
        """Take all steps that are left; return the simulation."""
        for _ in self:
            continue
        return self

    def close(self) -> None:
        """End worker processes; what was learnt stays. A step after this opens them again."""
        if self._engine is not None:
            self._states = self._engine.client_states()
            self._engine.close()
            self._engine = None

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step(self, t: int) -> Step:
        engine = self._opened()
        federation = self._federation
        federation.begin_round(t)
        began = time.perf_counter()
        try:
            with drawing_from(federation.random.derive("torch"), self._device):
                if self._state is None:
                    state = self.method.start(federation, self._initial.weights)
                else:
                    state = self.method.round(t, self._state, federation)
            self._check_state(state)
            federation.end_round()
        except BaseException as problem:
            engine.restore(self._states)  # the same step can be taken again
            if isinstance(problem, FedsirError) or not isinstance(problem, Exception):
                raise
            federation.end_round()  # where all clients failed, that is the reason of whatever followed
            if (fault := fault_in(type(self.method), problem)) is None:
                raise
            raise MethodError(f"Round {t}: {fault}.") from problem
        seconds = time.perf_counter() - began
        self._state, self._states = state, engine.client_states()
        return Step(t, state, self._row(t, seconds), self)

    def _check_state(self, state: ServerState) -> None:
        """Refuse what a method's own code returned instead of its state, or instead of a model."""
        function = self.method.start if self._state is None else self.method.round
        where, expected = f"{place_of(function)}{function.__name__} returned", self.method.State.__name__
        if not isinstance(state, self.method.State):
            raise MethodError(f"{where} {type(state).__name__}, not {expected}.")
        if (fault := self._form.fault_of(state.model)) is not None:
            raise MethodError(f"{where} {expected}(model=…), but model {fault}.")

    def _opened(self) -> Engine:
        if self._engine is None:
            engine = self._engine = self._open_engine(self._spec)
            engine.restore(self._states)
            weakref.finalize(self, engine.close)
            told = [listener.answered for listener in self._listeners if hasattr(listener, "answered")]

            def on_answer(progress: AskProgress) -> None:
                for tell in told:
                    tell(progress)

            self._federation = EngineFederation(
                engine,
                self.data.clients,
                self.method,
                **self._draws,  # type: ignore[arg-type]
                form=self._form,
                spill_folder=self._spill_folder,
                on_answer=on_answer if told else None,
            )
        return self._engine

    def _row(self, t: int, seconds: float) -> dict[str, Any]:
        """Return what happened in round t; values by client in federation order, whatever the order they came in."""
        log = self._federation.log

        def in_order(by_client: dict[ClientId, Any]) -> dict[ClientId, Any]:
            return {client: by_client[client] for client in self.data.clients if client in by_client}

        return {
            "round": t,
            **log.values,
            "seconds": seconds,
            "participants": list(self._federation.participants),
            "failures": in_order(log.failures),
            "bytes_up": sum(log.bytes_up.values()),
            "bytes_down": sum(log.bytes_down.values()),
            "bytes_up_by_client": in_order(log.bytes_up),
            "bytes_down_by_client": in_order(log.bytes_down),
            "seconds_by_client": in_order(log.seconds),
        }

    # ------------------------------------------------------------------ what there is to see

    @property
    def state(self) -> ServerState:
        """What the server remembers after the last step."""
        if self._state is None:
            raise MethodError("The simulation has not taken a step yet: iterate over it first.")
        return self._state

    @property
    def split(self) -> ClientSplit | None:
        """Who is clean and who is noisy, for methods that find out."""
        return self.state.split

    @property
    def seconds(self) -> float:
        """How long the rounds have taken, also those before a snapshot that this went on from."""
        return self._seconds + (0.0 if self._step_began is None else time.perf_counter() - self._step_began)

    def snapshot(self) -> Snapshot:
        """Return what another simulation needs to go on from here."""
        return Snapshot(self._next - 1, self.state, dict(self._states), self.seconds)

    def model(self, client: ClientId | None = None) -> nn.Module:
        """Return the trained model in evaluation mode; where clients have models of their own, that of a client.

        It takes what `data.preprocessing.normalise` makes of images; `predict` does both.
        """
        if not self.method.is_personal:
            return self.module(self.exported(self.state.model))
        if client is None:
            raise MethodError(f"With {self.method.name} every client has a model of its own: name a client.")
        return self.module(self.exported(self.client_models()[client]))

    def predict(self, images: Any, client: ClientId | None = None) -> NDArray[np.int64]:
        """Return the class of each image, (n,), as a position in `data.class_names`.

        images : as `FederatedData.from_arrays` takes them; those of another size are brought to the data's
        """
        pixels = images_of_form(images, self.data.channels, self.data.image_size)
        with prepared(self._device):
            return predict(self.model(client), torch.from_numpy(pixels), self.data.preprocessing.normalise)

    def corrected_labels(self) -> dict[ClientId, NDArray[np.int64]]:
        """Return the class numbers that each client trains on now: corrected where the method did so, else given."""
        labels = {client: self.data.given_labels[self.data.rows(client)].copy() for client in self.data.clients}
        for client, state in self._states.items():
            corrected = decode(state).get("corrected_labels")
            if corrected is not None:
                labels[client] = corrected.numpy()
        return labels

    # ------------------------------------------------------------------ for listeners

    @property
    def client_states(self) -> dict[ClientId, bytes]:
        """What simulated clients remember, as it is on the wire."""
        return self._states

    def test_predictions(self) -> NDArray[np.int64]:
        """Return the class of each test image, (n_test,); where clients have models of their own, (clients, n_test).

        Asked twice after one step, it computes once.
        """
        if self._predicted is None or self._predicted[0] is not self.state:
            self._opened()
            classes_of, n_test = self._federation.predict, len(self.data.test_labels)
            if self.method.is_personal:
                predicted = np.stack([classes_of(model, n_test) for model in self.client_models().values()])
            else:
                predicted = classes_of(self.state.model, n_test)
            self._predicted = (self.state, predicted)
        return self._predicted[1]

    def client_models(self) -> dict[ClientId, Weights]:
        """Return every client's own model; a client that has not trained yet has the common one."""
        own = {client: decode(self._states[client]) for client in self.data.clients if client in self._states}
        return {client: own.get(client, {}).get("model", self.state.model) for client in self.data.clients}

    def exported(self, weights: Weights) -> Weights:
        """Return weights in the layout of files."""
        return exported_weights(weights, self._initial.module, self._initial.stock)

    def exported_models(self) -> Weights:
        """Return what model.safetensors holds: the model, or CLIENT/NAME of every client's own."""
        if not self.method.is_personal:
            return self.exported(self.state.model)
        return {
            f"{client}/{name}": tensor.clone()  # safetensors refuses clients that still share the common model
            for client, model in self.client_models().items()
            for name, tensor in self.exported(model).items()
        }

    def module(self, exported: Weights) -> nn.Module:
        """Return a model in the layout of files with these weights, in evaluation mode."""
        module = copy.deepcopy(self._initial.stock)
        load_weights(module, exported)
        return module.eval()
