"""A client of a few digits."""

from collections.abc import Callable

import pytest
import torch

from fedsir.data.client import ClientData
from fedsir.data.source import Source
from fedsir.methods.base import Client
from fedsir.randomness import KeyedRandom
from tiny_network import Tiny

MakeClient = Callable[..., Client]


@pytest.fixture
def make_client(digits: Source) -> MakeClient:
    """Return a function that makes a client with the first n digits, and with other labels if a test wants them."""

    def make(
        n: int = 30,
        state: dict[str, torch.Tensor] | None = None,
        task: str = "train",
        labels: list[int] | None = None,
    ) -> Client:
        data = ClientData(
            images=torch.from_numpy(digits.train_images[:n]),
            labels=torch.from_numpy(digits.train_labels[:n].copy()) if labels is None else torch.tensor(labels),
            n_classes=10,
            preprocessing=digits.preprocessing,
        )
        random = KeyedRandom(5, ("client", "x", task))
        return Client(id="x", data=data, state=state or {}, random=random, new_module=Tiny, device="cpu")

    return make
