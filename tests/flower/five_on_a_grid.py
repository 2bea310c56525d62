"""Five small clients on a grid without a network, with a method that misbehaves on demand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from misbehaving_methods import Misbehaving

from fedsir.data.federation import FederatedData
from fedsir.engines.client_host import ClientHost, HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.engines.flower.client import client_app
from fedsir.engines.flower.grid import GridEngine, Link
from fedsir.engines.flower.roster import Roster
from fedsir.engines.flower.virtual import VirtualSites
from fedsir.methods.reply_check import Form
from fedsir.models.weights import weights_of
from loopback_grid import Answer, LoopbackGrid
from tiny_network import Tiny

CLIENTS = ("a", "b", "c", "d", "e")


class OnGrid:
    """A federation of five clients whose server keeps no client's memory, as in a deployment."""

    def __init__(self, data: FederatedData, folder: Path) -> None:
        self.method, template = Misbehaving(), Tiny()
        spec = HostSpec(self.method, template, seed=3, device="cpu", store=ClientStore.of(data))
        self.host, self.folder = ClientHost(spec), folder
        self.app = client_app(self.method.tasks(), VirtualSites(CLIENTS, folder, lambda: self.host))
        self.grid = LoopbackGrid(self.app, len(CLIENTS))
        self.form = Form.of(weights_of(template), classes=10, features=6)
        self.restart()

    def restart(self, timeout: float | None = 0.2) -> None:
        """Stand for a server that died and came back: nothing but the grid and the sites' disks is left."""
        link = Link(self.grid, Roster(self.grid, 0.2), "run", timeout=timeout)
        self.engine = GridEngine(link, self.host, model_bytes=100)
        self.fed = EngineFederation(
            self.engine, CLIENTS, self.method, seed=3, participation=1.0, dropout=0.0, form=self.form
        )
        self.fed.begin_round(1)

    def ask(self, task: Callable[..., Any], clients: Any = CLIENTS, **payload: Any) -> dict[str, Any]:
        return dict(self.fed.ask(task, clients, **payload))

    def answer_with(self, answer: Answer) -> None:
        self.grid.answer = answer
