"""A grid of virtual nodes on one machine, whose disks the evaluator and the checkpoint may read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.flower.client import Site
from fedsir.engines.flower.grid import GridEngine, Link
from fedsir.engines.flower.site_memory import NOTHING, SiteMemory
from fedsir.methods.replies import ClientId

if TYPE_CHECKING:
    from pathlib import Path

    from flwr.app import Context

    from fedsir.engines.flower.records import Order


@dataclass(frozen=True)
class VirtualSites:
    """Finds a virtual node's client, by the number of its partition."""

    clients: tuple[ClientId, ...]
    folder: Path
    host: Callable[[], ClientHost]

    def client(self, context: Context) -> ClientId:
        return self.clients[int(context.node_config["partition-id"])]

    def describe(self, context: Context) -> dict[str, Any]:
        del context
        return {}  # the server has dealt the data itself

    def open(self, order: Order, context: Context) -> Site:
        return Site(self.host(), SiteMemory(self.folder, order.run, self.client(context), data_sha256=""))


class VirtualEngine(GridEngine):
    """Hands out what its clients remember: in a simulation all disks are this machine's."""

    def __init__(self, link: Link, spec: HostSpec, folder: Path) -> None:
        super().__init__(link, ClientHost(spec), sum(t.nbytes for t in spec.template.state_dict().values()))
        self._folder = folder
        self._states: dict[ClientId, tuple[str, bytes]] = {}  # with their versions

    def _memory(self, client: ClientId) -> SiteMemory:
        return SiteMemory(self._folder, self._link.run, client, data_sha256="")

    def client_states(self) -> dict[ClientId, bytes]:
        """Return what clients remember: for checkpoints, and for the evaluator of a simulation."""
        super().client_states()
        for client, version in self._versions.items():
            if self._states.get(client, ("", NOTHING))[0] != version:  # read once, so that the same is the same object
                self._states[client] = (version, self._memory(client).read(version))
        return {client: state for client, (version, state) in self._states.items() if version}

    def restore(self, states: Mapping[ClientId, bytes]) -> None:
        self._turn += 1
        name = f"{0:06d}-{self._attempt}-{self._turn:06d}"
        self._states = {client: (self._memory(client).write(name, state), state) for client, state in states.items()}
        self._versions = {client: version for client, (version, _) in self._states.items()}
        self._settled = dict(self._versions)
