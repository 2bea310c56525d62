"""The local engine: client work in this process, or in worker processes of one torch thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from fedsir.engines import device_settings
from fedsir.engines.base import Answer, AnyCall, Call, Engine, PredictCall
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.wire import encode
from fedsir.methods.replies import ClientId

NOTHING = encode({})
LONGEST_TEMPORARY_FOLDER = 107 - len("/pymp-12345678/listener-12345678")  # bytes
DIED = (
    "its worker process died twice (too little memory? In a script of your own, is the call under "
    'if __name__ == "__main__":?)'
)


class LocalEngine(Engine):
    """What both local engines share: this process keeps what its simulated clients remember."""

    def __init__(self) -> None:
        self._states: dict[ClientId, bytes] = {}

    def keep(self, call: Call, answer: Answer) -> None:
        if answer.state is None or answer.state == NOTHING:  # no entry in every checkpoint to come
            self._states.pop(call.client, None)
        else:
            self._states[call.client] = answer.state

    def client_states(self) -> dict[ClientId, bytes]:
        return dict(self._states)

    def restore(self, states: Mapping[ClientId, bytes]) -> None:
        self._states = dict(states)

    def close(self) -> None:
        return None  # in one process there is nothing to give back

    def _state(self, call: AnyCall) -> bytes:
        return self._states.get(call.client, NOTHING) if isinstance(call, Call) else NOTHING


class InProcessEngine(LocalEngine):
    """Runs one call after the other, right here."""

    def __init__(self, spec: HostSpec) -> None:
        super().__init__()
        self._host = ClientHost(spec)

    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        for call in calls:
            yield call, self._host.answer(call, common, self._state(call))


class WorkerEngine(LocalEngine):
    """Runs calls in worker processes, the largest client first, so that no worker idles at the end of a round."""

    def __init__(self, spec: HostSpec, n_workers: int) -> None:
        super().__init__()
        spec.check_workers_can_have_it()
        self._context = start_method(spec.device)
        self._spec = replace(spec, store=spec.store.shared())
        self._workers = [_Worker(self._context, self._spec) for _ in range(n_workers)]

    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        waiting = deque(sorted(calls, key=self._size, reverse=True))
        retried: set[AnyCall] = set()
        busy: dict[Connection, tuple[_Worker, AnyCall]] = {}
        idle = list(self._workers)
        for worker in idle:
            worker.forget_common()
        while waiting or busy:
            while waiting and idle:
                worker, call = idle.pop(), waiting.popleft()
                worker.send(call, self._state(call), common)
                busy[worker.connection] = (worker, call)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, call = busy.pop(ready)
                try:
                    answer: Answer = ready.recv()
                except (EOFError, OSError):
                    idle.append(self._replace(worker))
                    if call in retried:
                        yield call, Answer(None, None, 0.0, failure=DIED)
                    else:
                        # Once may be an accident (memory ran out beside a larger neighbour): try it again.
                        retried.add(call)
                        waiting.append(call)
                    continue
                idle.append(worker)
                yield call, answer

    def _size(self, call: AnyCall) -> int:
        if isinstance(call, Call):
            return self._spec.store.size(call.client)
        return call.stop - call.start if isinstance(call, PredictCall) else 0

    def _replace(self, dead: _Worker) -> _Worker:
        dead.stop()
        fresh = _Worker(self._context, self._spec)
        self._workers[self._workers.index(dead)] = fresh
        return fresh

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()


class _Worker:
    """One process and the pipe to it; it ends by itself when the pipe closes, however this process ends."""

    def __init__(self, context: Any, spec: HostSpec) -> None:
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, spec), daemon=True)
        start(self._process)
        theirs.close()
        self._has_common = False

    def forget_common(self) -> None:
        self._has_common = False

    def send(self, call: AnyCall, state: bytes, common: bytes) -> None:
        """Hand over a call; the common payload travels once per `ask` and worker."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a dead worker shows in recv
            self.connection.send((call, state, None if self._has_common else common))
            self._has_common = True

    def stop(self) -> None:
        self.connection.close()
        self._process.terminate()
        self._process.join(timeout=5)


def start(process: Any) -> None:
    """Start a process of `start_method`; Ctrl-C is put off until it runs, and it never gets any.

    Else a fork server that still loads torch, or a worker that has half of its set-up, would answer with a traceback.
    """
    is_main = threading.current_thread() is threading.main_thread()  # signals belong to it
    if not is_main or signal.getsignal(signal.SIGINT) is signal.SIG_IGN or not hasattr(signal, "pthread_sigmask"):
        process.start()
        return
    resource_tracker.ensure_running()  # when multiprocessing starts it, it unblocks Ctrl-C
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: pressed.append(1))  # here, whichever thread the system tells
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # what is blocked stays so in a new process
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
    if pressed:
        signal.raise_signal(signal.SIGINT)


def _serve(connection: Connection, spec: HostSpec) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the main process's to handle
    device_settings.prepare(spec.device)
    host = ClientHost(spec)
    common = b""
    while True:
        try:
            call, state, new_common = connection.recv()
            common = common if new_common is None else new_common
            connection.send(host.answer(call, common, state))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def start_method(device: str) -> Any:
    """Prefer a fork server: it loads torch once and forks clean workers from there.

    Apple's libraries behind MPS do not allow that; CUDA does as long as the server has not started it.
    """
    can_fork = "forkserver" in multiprocessing.get_all_start_methods() and not device.startswith("mps")
    # It listens at a file in the folder for temporary files, whose whole path the system limits to 107 bytes.
    has_room = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_TEMPORARY_FOLDER
    if can_fork and has_room:
        context = multiprocessing.get_context("forkserver")
        # The first optimiser in a process loads torch._dynamo, a second's work: once here instead of in each worker.
        context.set_forkserver_preload(["fedsir.engines.client_host", "torch._dynamo"])
        return context
    return multiprocessing.get_context("spawn")


def local_engine(spec: HostSpec, n_workers: int) -> LocalEngine:
    """Return the engine for so many workers; one worker is this process."""
    return InProcessEngine(spec) if n_workers == 1 else WorkerEngine(spec, n_workers)
