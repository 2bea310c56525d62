"""A method whose clients crash, fail and answer rubbish on request; worker processes find it by an entry point."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

from fedsir.methods.base import Client, Federation, Method, Reply, Server, ServerState, client_task, server_task


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
            "public": None if client.public is None else int(client.public.sum()),
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
    def meet(self, client: Client, folder: str, enough: int, seconds: float) -> Reply:
        """Tell how many processes were in here at once; all leave when one saw `enough`, or after so many seconds."""
        mine, seen = Path(folder) / str(os.getpid()), Path(folder).with_suffix(".seen")
        mine.touch()
        most, end = 0, time.monotonic() + seconds
        while not seen.exists() and time.monotonic() < end:
            most = max(most, len(list(Path(folder).iterdir())))
            if most >= enough:
                seen.touch()
            time.sleep(0.002)
        mine.unlink()
        return {"most": most}

    @client_task
    def memory(self, client: Client, file: str) -> Reply:
        """Tell how much of a mapped file is in memory, and how much of that is this process's own, in bytes."""
        parts = Path("/proc/self/smaps").read_text().split("VmFlags")
        mappings = [part.splitlines() for part in parts if file in part]
        found = [dict(line.split(":") for line in mapping if line.endswith(" kB")) for mapping in mappings]
        return {
            "n_mappings": len(found),
            "resident": sum(int(part["Rss"].split()[0]) * 1024 for part in found),
            "own": sum(int(part["Anonymous"].split()[0]) * 1024 for part in found),
        }

    @server_task
    def look_at_public(self, server: Server, **payload: Any) -> Reply:
        """Tell what the server's half can know where it computes."""
        assert server.public is not None
        return {
            "pixels": int(server.public.sum()),
            "draw": torch.rand(3, generator=server.random.for_torch()),
            "n_weights": sum(tensor.numel() for tensor in server.module(payload.pop("model")).state_dict().values()),
            "form": repr(server.preprocessing),
            "pid": os.getpid(),
            "payload": payload,
        }

    @server_task
    def break_down(self, server: Server, victim: str, **payload: Any) -> Reply:
        if payload["me"] == victim:
            raise ValueError("out of paper\nand ink")
        return {}

    @client_task
    def fail(self, client: Client, victim: str) -> Reply:
        client.state["touched"] = torch.ones(1)
        if client.id == victim:
            raise ValueError("the disk is full\nand more lines that nobody needs")
        return {}

    @client_task
    def send_object(self, client: Client) -> Reply:
        return {"thing": object()}
