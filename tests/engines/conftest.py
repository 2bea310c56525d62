"""Engines over five small clients, with a method that misbehaves on request."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedsir.data.federation import FederatedData
from fedsir.engines.client_host import HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.engines.local import Engine, local_engine
from fedsir.methods.base import Weights
from fedsir.methods.settings import MethodConfig
from fedsir.models.build import build_model
from fedsir.models.config import ModelConfig
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom

CLIENTS = ("a", "b", "c", "d", "e")


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with an entry point, as pip would, in a folder that worker processes see too."""
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(Path(__file__).parent / "plugin" / "misbehaving_methods.py", site)
    info = site / "misbehaving_methods-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: misbehaving-methods\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fedsir.methods]\nmisbehaving = misbehaving_methods:Misbehaving\n")
    monkeypatch.syspath_prepend(str(site))


@pytest.fixture(scope="session")
def five_clients(deal: Callable[..., Any]) -> FederatedData:
    sizes = (3, 8, 1, 5, 6)
    starts = [sum(sizes[:k]) for k in range(5)]
    data = deal({client: range(s, s + n) for client, s, n in zip(CLIENTS, starts, sizes, strict=True)})
    assert isinstance(data, FederatedData)
    return replace(data, public_images=data.images[-7:])


OpenEngine = Callable[..., tuple[EngineFederation, Engine, Weights]]


@pytest.fixture
def opened(five_clients: FederatedData, tmp_path: Path) -> Iterator[OpenEngine]:
    """Return a function that opens (federation, engine, first model) with so many workers; all close in the end."""
    contexts: list[AbstractContextManager[Engine]] = []

    def open_engine(
        n_workers: int, method: str = "misbehaving", model: str = "small_cnn"
    ) -> tuple[EngineFederation, Engine, Weights]:
        spec = HostSpec(
            method=method,
            method_config=MethodConfig(name=method, batch_size=4),
            model=ModelConfig(name=model),
            n_classes=five_clients.n_classes,
            in_channels=five_clients.channels,
            seed=3,
            device="cpu",
            store=ClientStore.of(five_clients),
        )
        context = local_engine(spec, n_workers)
        contexts.append(context)
        engine = context.__enter__()
        module = build_model(
            spec.model,
            n_classes=spec.n_classes,
            in_channels=spec.in_channels,
            random=KeyedRandom(3),
            image_size=five_clients.image_size,
        )
        first = weights_of(module)
        fed = EngineFederation(engine, CLIENTS, seed=3, participation=1.0, dropout=0.0, initial_model=first)
        fed.begin_round(1)
        return fed, engine, first

    yield open_engine
    for context in contexts:
        context.__exit__(None, None, None)
