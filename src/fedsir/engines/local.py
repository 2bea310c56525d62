"""The local engine: client work in this process, or in worker processes of one torch thread each."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from fedsir.engines import device_settings
from fedsir.engines.base import Answer, AnyCall, Call, PredictCall
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.wire import encode
from fedsir.methods.replies import ClientId

NOTHING = encode({})
LONGEST_TEMPORARY_FOLDER = 107 - len("/pymp-12345678/listener-12345678")  # bytes
DIED = (
    "its worker process died twice (too little memory? In a script of your own, is the call under "
    'if __name__ == "__main__":?)'
)


class LocalEngine(ABC):
    """What both local engines share: this process keeps what its simulated clients remember."""

    def __init__(self) -> None:
        self._states: dict[ClientId, bytes] = {}

    @abstractmethod
    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        """Yield each call with its answer, in any order; `common` is the payload for all."""

    def keep(self, call: Call, answer: Answer) -> None:
        if answer.state in (None, NOTHING):  # nothing to remember: no entry in every checkpoint to come
            self._states.pop(call.client, None)
        else:
            assert answer.state is not None
            self._states[call.client] = answer.state

    def client_states(self) -> dict[ClientId, bytes]:
        return dict(self._states)

    def restore(self, states: Mapping[ClientId, bytes]) -> None:
        self._states = dict(states)

    def close(self) -> None:  # noqa: B027 - in one process there is nothing to give back
        """Give back processes and memory."""

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
                    worker = self._replace(worker)
                    idle.append(worker)
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
    """Start a process of `start_method` that will not answer Ctrl-C with a traceback of its own.

    A program inherits that a signal is ignored, so it is ignored while one is launched. To wait until a fork server has
    loaded torch takes seconds, in which Ctrl-C must count.
    """
    is_forked = process._start_method == "forkserver"
    if threading.current_thread() is not threading.main_thread():  # signals belong to the main thread
        process.start()
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        if is_forked:
            from multiprocessing import forkserver  # where there is one

            forkserver.ensure_running()
        else:
            process.start()
    finally:
        signal.signal(signal.SIGINT, before)
    if is_forked:
        process.start()


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
    """Prefer a fork server: it loads torch once and forks clean workers from there."""
    has_fork_server = "forkserver" in multiprocessing.get_all_start_methods()
    # It listens at a file in the folder for temporary files, whose whole path the system limits to 107 bytes.
    has_room = len(os.fsencode(tempfile.gettempdir())) <= LONGEST_TEMPORARY_FOLDER
    if has_fork_server and has_room and device_settings.forks_workers(device):
        context = multiprocessing.get_context("forkserver")
        # The first optimiser in a process loads torch._dynamo, a second's work: once here instead of in each worker.
        context.set_forkserver_preload(["fedsir.engines.client_host", "torch._dynamo"])
        return context
    return multiprocessing.get_context("spawn")


def local_engine(spec: HostSpec, n_workers: int) -> LocalEngine:
    """Return the engine for so many workers; one worker is this process."""
    return InProcessEngine(spec) if n_workers == 1 else WorkerEngine(spec, n_workers)
