"""Clients' samples: each client gets its own, and other processes get the name of a file."""

import pickle
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch

from fedsir.data.federation import FederatedData
from fedsir.engines.client_store import ClientStore

Deal = Callable[..., Any]
ROWS = {"north": [4, 2, 19, 0, 3], "south": [30], "east": list(range(100, 5, -7))}


@pytest.fixture
def data(deal: Deal) -> FederatedData:
    dealt = deal(ROWS, {"north": [9, 9, 9, 9, 9]})
    assert isinstance(dealt, FederatedData)
    return dealt


@pytest.mark.parametrize("is_sent", [False, True])
def test_each_client_sees_its_own_samples(is_sent: bool, data: FederatedData, digits: Any) -> None:
    store = ClientStore.of(data)
    if is_sent:
        store = pickle.loads(ForkingPickler.dumps(ClientStore.of(data).shared()))  # as a worker process receives it
    for client, rows in ROWS.items():
        own = store.client_data(client)
        assert len(own) == store.size(client) == len(rows)
        assert torch.equal(own.images, torch.from_numpy(digits.train_images[rows]))
        assert torch.equal(own.labels, torch.tensor(data.given_labels[data.rows(client)]))
        assert (own.preprocessing, own.n_classes) == (data.preprocessing, 10)
    assert store.client_data("north").labels.tolist() == [9] * 5  # given, not true
    assert torch.equal(store.test_images(0, 100), torch.from_numpy(digits.test_images[:100]))
    assert torch.equal(store.test_images(40, 43), torch.from_numpy(digits.test_images[40:43]))


def test_workers_get_a_file_and_numbers_not_images(data: FederatedData) -> None:
    assert len(ForkingPickler.dumps(ClientStore.of(data).shared())) < 3000 < data.images.nbytes
