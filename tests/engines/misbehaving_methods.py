"""A method whose clients crash, fail and answer rubbish on request."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsir.methods.base import Client, Federation, Method, Server, ServerState, client_task, server_task
from fedsir.methods.replies import Reply, Trained, Weights
from fedsir.methods.settings import MethodConfig


@dataclass(frozen=True)
class Description(Reply):
    pixels: int
    labels: Tensor
    visits: Tensor
    draw: Tensor
    threads: int
    payload: dict[str, Any]
    public: int | None


@dataclass(frozen=True)
class Process(Reply):
    pid: int
    seen: int = 0


@dataclass(frozen=True)
class View(Reply):
    pixels: int
    draw: Tensor
    n_weights: int
    preprocessing: str
    pid: int
    payload: dict[str, Any]


class Misbehaving(Method[MethodConfig, ServerState]):
    name = "misbehaving"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        return state

    @client_task
    def describe(self, client: Client, **payload: Any) -> Description:
        """Tell what a client can know, and count its visits in its state."""
        client.state["visits"] = client.state.get("visits", torch.tensor(0)) + 1
        return Description(
            pixels=int(client.data.images.sum()),
            labels=client.data.labels,
            visits=client.state["visits"],
            draw=torch.rand(3, generator=client.random.for_torch()),
            threads=torch.get_num_threads(),
            payload=payload,
            public=None if client.public is None else int(client.public.sum()),
        )

    @client_task
    def process(self, client: Client) -> Process:
        return Process(os.getpid())

    @client_task
    def crash(self, client: Client, victim: str, folder: str, times: int) -> Process:
        """Kill this very process the first `times` times that the victim is asked; files in `folder` keep count."""
        earlier = len(list(Path(folder).iterdir()))
        if client.id == victim and earlier < times:
            (Path(folder) / str(earlier)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Process(os.getpid(), earlier)

    @client_task
    def spoil(self, client: Client) -> Process:
        """Write into everything that a client is handed."""
        for tensor in (client.data.labels, client.data.images, client.images, client.public):
            assert tensor is not None
            tensor.zero_()
        return Process(os.getpid())

    @server_task
    def look_at_public(self, server: Server, model: Weights, **payload: Any) -> View:
        """Tell what the server's half can know where it computes."""
        assert server.public is not None
        return View(
            pixels=int(server.public.sum()),
            draw=torch.rand(3, generator=server.random.for_torch()),
            n_weights=sum(tensor.numel() for tensor in server.module(model).state_dict().values()),
            preprocessing=repr(server.preprocessing),
            pid=os.getpid(),
            payload=payload,
        )

    @server_task
    def break_down(self, server: Server, victim: str, me: str) -> Reply:
        if me == victim:
            raise ValueError("out of paper\nand ink")
        return Reply()

    @client_task
    def fail(self, client: Client, victim: str) -> Reply:
        client.state["touched"] = torch.ones(1)
        if client.id == victim:
            raise ValueError("the disk is full\nand more lines that nobody needs")
        return Reply()

    @client_task
    def send_object(self, client: Client) -> Trained:
        return Trained({"w": object()}, 1, 0.0)  # type: ignore[dict-item]

    @client_task
    def send_something_else(self, client: Client) -> Trained:
        return Process(1)  # type: ignore[return-value]
