"""Engines over five small clients."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from misbehaving_methods import Misbehaving

from fedsir.data.federation import FederatedData
from fedsir.engines.base import Engine
from fedsir.engines.client_host import HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.engines.local import local_engine
from fedsir.methods.base import AnyMethod
from fedsir.methods.replies import Weights
from fedsir.methods.reply_check import Form
from fedsir.models.weights import weights_of
from tiny_network import Tiny

CLIENTS = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="session")
def five_clients(deal: Callable[..., Any]) -> FederatedData:
    sizes = (3, 8, 1, 5, 6)
    starts = [sum(sizes[:k]) for k in range(5)]
    data = deal({client: range(s, s + n) for client, s, n in zip(CLIENTS, starts, sizes, strict=True)})
    assert isinstance(data, FederatedData)
    return replace(data, public_images=data.images[-7:])


OpenEngine = Callable[..., tuple[EngineFederation, Engine, Weights]]


@pytest.fixture
def opened(five_clients: FederatedData) -> Iterator[OpenEngine]:
    """Return a function that opens (federation, engine, first model) with so many workers; all close in the end."""
    engines: list[Engine] = []

    def open_engine(n_workers: int, method: AnyMethod | None = None) -> tuple[EngineFederation, Engine, Weights]:
        template, store, method = Tiny(), ClientStore.of(five_clients), method or Misbehaving()
        spec = HostSpec(method, template, seed=3, device="cpu", store=store)
        engine, first = local_engine(spec, n_workers), weights_of(template)
        engines.append(engine)
        form = Form.of(first, classes=10, features=6)
        fed = EngineFederation(engine, CLIENTS, method, seed=3, participation=1.0, dropout=0.0, form=form)
        fed.begin_round(1)
        return fed, engine, first

    yield open_engine
    for engine in engines:
        engine.close()
