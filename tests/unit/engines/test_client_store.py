"""Clients' samples, once per machine: views in one process, mapped files across processes."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsir.data.federation import FederatedData
from fedsir.engines.client_store import ClientStore

Deal = Callable[..., Any]
ROWS = {"north": range(5), "south": range(5, 6), "east": range(6, 20)}


@pytest.fixture
def data(deal: Deal) -> FederatedData:
    dealt, _ = deal(ROWS, {"north": [9, 9, 9, 9, 9]})
    assert isinstance(dealt, FederatedData)
    return dealt


@pytest.mark.parametrize("is_shared", [False, True])
def test_each_client_sees_its_own_samples(is_shared: bool, data: FederatedData, tmp_path: Path) -> None:
    store = ClientStore.of(data, tmp_path if is_shared else None)
    if is_shared:
        store = pickle.loads(pickle.dumps(store))  # as a worker process receives it
    for client, rows in ROWS.items():
        own = store.client_data(client)
        assert len(own) == store.size(client) == len(rows)
        assert torch.equal(own.images, torch.from_numpy(data.images[data.rows(client)]))
        assert torch.equal(own.labels, torch.from_numpy(data.given_labels[data.rows(client)]))
        assert (own.mean, own.std, own.n_classes) == (data.mean, data.std, 10)
    assert store.client_data("north").labels.tolist() == [9] * 5  # given, not true
    assert torch.equal(store.test_images(), torch.from_numpy(data.test_images))


def test_a_clients_samples_are_a_view(data: FederatedData) -> None:
    store = ClientStore.of(data)
    assert store.client_data("east").images.data_ptr() == data.images[6:].__array_interface__["data"][0]


def test_workers_get_names_not_samples(data: FederatedData, tmp_path: Path) -> None:
    sent = pickle.dumps(ClientStore.of(data, tmp_path))
    assert len(sent) < 2000 < data.images.nbytes + data.test_images.nbytes


def test_a_store_in_memory_stays_in_its_process(data: FederatedData) -> None:
    with pytest.raises(AssertionError, match="shared files"):
        pickle.dumps(ClientStore.of(data))
