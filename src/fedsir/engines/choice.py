"""Engines by name: where client work runs; the result does not depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedsir.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from fedsir.engines.base import Engine
    from fedsir.engines.client_host import HostSpec

EngineOpener = Callable[["HostSpec"], "Engine"]
ENGINES = {
    "local": "this process, or worker processes",
    "flower": "Flower's simulation, on Ray's processes; needs fedsir[flower]",
}


def engine_opener(name: str | EngineOpener, workers: int) -> EngineOpener:
    """Return what opens the engine of this name with so many processes; an unknown name is an error."""
    if callable(name):
        return name
    if name not in ENGINES:
        raise ConfigError(f"engine: there is no {name!r}.{did_you_mean(name, ENGINES)} Use {' or '.join(ENGINES)}.")
    if name == "flower":
        from fedsir.engines.flower.offline import check_installed

        check_installed("flwr", "ray")

    def open_engine(spec: HostSpec) -> Engine:
        if name == "local":
            from fedsir.engines.local import local_engine

            return local_engine(spec, workers)
        from fedsir.engines.flower.ray_simulation import SimulationEngine

        return SimulationEngine(spec, workers)

    return open_engine
