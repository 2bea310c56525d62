"""Clients' samples: each client gets its own, and other processes get the name of a file."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsir.data.federation import FederatedData
from fedsir.engines.client_store import ClientStore

Deal = Callable[..., Any]
ROWS = {"north": [4, 2, 19, 0, 3], "south": [30], "east": list(range(100, 5, -7))}


@pytest.fixture
def data(deal: Deal) -> FederatedData:
    dealt, _ = deal(ROWS, {"north": [9, 9, 9, 9, 9]})
    assert isinstance(dealt, FederatedData)
    return dealt


@pytest.fixture
def images_file(data: FederatedData, tmp_path: Path) -> Path:
    path = tmp_path / "images"
    path.write_bytes(data.images.data)
    return path


@pytest.mark.parametrize("is_sent", [False, True])
def test_each_client_sees_its_own_samples(is_sent: bool, data: FederatedData, digits: Any, images_file: Path) -> None:
    store = ClientStore.of(data)
    if is_sent:
        store = pickle.loads(pickle.dumps(ClientStore.of(data, images_file)))  # as a worker process receives it
    for client, rows in ROWS.items():
        own = store.client_data(client)
        assert len(own) == store.size(client) == len(rows)
        assert torch.equal(own.images, torch.from_numpy(digits.train_images[rows]))
        assert torch.equal(own.labels, torch.from_numpy(data.given_labels[data.rows(client)]))
        assert (own.mean, own.std, own.n_classes) == (data.mean, data.std, 10)
    assert store.client_data("north").labels.tolist() == [9] * 5  # given, not true
    assert torch.equal(store.test_images(0, 100), torch.from_numpy(digits.test_images[:100]))
    assert torch.equal(store.test_images(40, 43), torch.from_numpy(digits.test_images[40:43]))
    assert store.image_size == (8, 8)


def test_a_client_that_changes_its_images_changes_a_copy(data: FederatedData) -> None:
    store = ClientStore.of(data)
    before = store.client_data("north").images
    store.client_data("north").images.zero_()
    assert torch.equal(store.client_data("north").images, before)


def test_workers_get_a_name_and_numbers_not_images(data: FederatedData, images_file: Path) -> None:
    sent = pickle.dumps(ClientStore.of(data, images_file))
    assert len(sent) < 3000 < data.images.nbytes


def test_a_store_without_a_file_stays_in_its_process(data: FederatedData) -> None:
    with pytest.raises(AssertionError, match="store with a file"):
        pickle.dumps(ClientStore.of(data))
