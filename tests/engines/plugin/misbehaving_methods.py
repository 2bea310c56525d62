"""A method whose clients crash, fail and answer rubbish on request; worker processes find it by an entry point."""

import os
import signal
from pathlib import Path
from typing import Any

import torch

from fedsir.methods.base import Client, Federation, Method, Reply, ServerState, client_task


class Misbehaving(Method):
    name = "misbehaving"
    summary = "for tests"

    def round(self, t: int, state: ServerState, fed: Federation) -> ServerState:
        return state

    @client_task
    def describe(self, client: Client, **payload: Any) -> Reply:
        """Tell what a client can know, and count its visits in its state."""
        client.state["visits"] = client.state.get("visits", torch.tensor(0)) + 1
        return {
            "id": client.id,
            "pixels": int(client.data.images.sum()),
            "labels": client.data.labels,
            "visits": client.state["visits"],
            "draw": torch.rand(3, generator=client.random.for_torch()),
            "threads": torch.get_num_threads(),
            "payload": payload,
        }

    @client_task
    def process(self, client: Client) -> Reply:
        return {"pid": os.getpid()}

    @client_task
    def crash(self, client: Client, victim: str, folder: str, times: int) -> Reply:
        """Kill this very process the first `times` times that the victim is asked; files in `folder` keep count."""
        earlier = len(list(Path(folder).iterdir()))
        if client.id == victim and earlier < times:
            (Path(folder) / str(earlier)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"pid": os.getpid(), "seen": earlier}

    @client_task
    def fail(self, client: Client, victim: str) -> Reply:
        client.state["touched"] = torch.ones(1)
        if client.id == victim:
            raise ValueError("the disk is full\nand more lines that nobody needs")
        return {}

    @client_task
    def send_object(self, client: Client) -> Reply:
        return {"thing": object()}
