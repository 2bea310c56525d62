"""Flower's simulation as an engine: clients are virtual nodes, and Ray's processes compute for them.

Flower wants to call the server; here the loop is ours. So its runtime has a thread to itself, in which the server's app
does no more than hand over the grid and wait for the end.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import Future
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
import torch
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation
from ray._private.node import Node

from fedsir.engines import device_settings
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.flower.client import client_app
from fedsir.engines.flower.grid import Link
from fedsir.engines.flower.roster import GridError, Roster
from fedsir.engines.flower.virtual import VirtualEngine, VirtualSites
from fedsir.methods.own_code import said

if TYPE_CHECKING:
    from flwr.clientapp import ClientApp

PATIENCE = 600.0  # seconds for Ray to start its processes, which load torch
LONGEST_FOLDER = 40  # bytes: Ray puts sockets 64 bytes below it, and the system takes 107
TRIES, TOO_SLOW = 4, "timed out during startup"  # Ray gives its processes 30 seconds, too few on a busy machine
RESTARTS = 1000  # of a Ray process that died
# Seconds, not Ray's 60: after `kill -9` of this process the kernel ends Ray's own processes, but its two agents of the
# machine first tell a server that is gone, and end only when they no longer try. The server lies on this machine, so
# that a lost connection means that it has died.
FAREWELL = "10"


@lru_cache(maxsize=1)
def _host(spec: Any) -> ClientHost:
    """Return this process's host; it stays, and so does the one copy of the images that all processes map."""
    found: HostSpec = ray.get(spec)
    device_settings.prepare(found.device)
    return ClientHost(found)


class SimulationEngine(VirtualEngine):
    """A grid of virtual nodes on this machine, whose disks the evaluator and the checkpoint may read."""

    def __init__(self, spec: HostSpec, workers: int) -> None:
        self._clients = tuple(spec.store.rows_by_client)
        self._folder = Path(tempfile.mkdtemp(prefix="fedsir-"))
        self._end, self._has_ray = threading.Event(), False
        try:
            self._start_ray(workers)
            sites = VirtualSites(self._clients, self._folder, partial(_host, ray.put(spec)))
            app = client_app(spec.method.tasks(), sites)
            handed: Future[Grid] = Future()
            self._runtime = threading.Thread(
                target=self._serve, args=(app, handed, _resources(spec.device, workers)), daemon=True
            )
            self._runtime.start()
            grid = handed.result(timeout=PATIENCE)
            roster = Roster(grid, PATIENCE, check=self._check)
            # Locally a reply may be of any size, and so it may be here.
            link = Link(grid, roster, run="simulation", check=self._check, max_reply=sys.maxsize)
            super().__init__(link, spec, self._folder)
            self._wait_for_all(roster)
        except BaseException:
            self.close()
            raise

    def _start_ray(self, workers: int) -> None:
        if ray.is_initialized():
            raise GridError("engine: Ray already runs in this process, and Flower's simulation would end it.")
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do anyway, without its advice
        os.environ.setdefault("RAY_worker_niceness", "0")  # else clients wait for every other process
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", FAREWELL)
        settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False}
        settings["logging_level"] = logging.CRITICAL
        if len(os.fsencode(self._folder)) <= LONGEST_FOLDER:
            settings["_temp_dir"] = str(self._folder / "ray")
        self._has_ray = True  # or a part of it
        for tries_left in reversed(range(TRIES)):
            try:
                ray.init(num_cpus=workers, **settings)
                return
            except Exception as problem:  # ports, memory, disk: whatever Ray needs and does not get
                _end_half_started(problem)
                if not tries_left or TOO_SLOW not in str(problem):
                    raise GridError(f"engine: Ray cannot start: {said(problem)}") from problem

    def _serve(self, app: ClientApp, handed: Future[Grid], resources: dict[str, Any]) -> None:
        """Run Flower's simulation until the end is called for; nothing of it reaches the terminal."""
        server = ServerApp()

        @server.main()
        def main(grid: Grid, context: Context) -> None:
            del context
            handed.set_result(grid)
            self._end.wait()

        logging.getLogger("flwr").setLevel(logging.CRITICAL + 1)
        # Python waits for Flower's threads before it ends, and before anything else could tell them to.
        threading._register_atexit(self._end.set)  # type: ignore[attr-defined]
        try:
            run_simulation(server, app, len(self._clients), backend_config={"client_resources": resources})
        except BaseException as problem:
            if not handed.done():
                handed.set_exception(problem)
        finally:
            self._end.set()

    def _check(self) -> None:
        if self._end.is_set():
            raise GridError("Flower's simulation has ended: the same command goes on from the last checkpoint.")

    def _wait_for_all(self, roster: Roster) -> None:
        ends = time.monotonic() + PATIENCE
        while len(list(roster.grid.get_node_ids())) < len(self._clients) and time.monotonic() < ends:
            self._check()
            time.sleep(0.05)
        found = roster.look()
        missing = [client for client in self._clients if client not in found]
        if missing:
            why = next(iter(roster.refused.values()), "it did not start")
            raise GridError(f"engine: Flower's node of client {missing[0]} does not answer: {why}.")

    def close(self) -> None:
        self._end.set()
        if (runtime := getattr(self, "_runtime", None)) is not None:
            runtime.join(timeout=60)
        if self._has_ray:
            ray.shutdown()  # once more where Flower's runtime came so far: that does no harm
        shutil.rmtree(self._folder, ignore_errors=True)


def _end_half_started(problem: BaseException) -> None:
    """End the processes of a Ray that did not come up; Ray itself forgets them until this process ends."""
    for frame, _ in traceback.walk_tb(problem.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False)  # type: ignore[no-untyped-call]


def _resources(device: str, workers: int) -> dict[str, Any]:
    """Return what a Ray process takes: a core, and its share of the accelerators."""
    n_devices = torch.cuda.device_count() if device.startswith("cuda") else 0
    return {"num_cpus": 1, "num_gpus": n_devices / workers, "max_restarts": RESTARTS}
