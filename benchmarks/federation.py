"""A federation of random 32×32 images to time rounds on; what is learned does not matter here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedsir.data.federation import FederatedData, GroundTruth
from fedsir.data.preprocessing import Preprocessing
from fedsir.engines.choice import engine_opener
from fedsir.engines.client_host import HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.methods.base import AnyMethod
from fedsir.methods.registry import method_class
from fedsir.methods.replies import Weights
from fedsir.methods.reply_check import Form
from fedsir.models.initial import initial_model
from fedsir.runs.config import parse_config


def random_federation(n_clients: int, per_client: int, size: int = 32, channels: int = 3) -> FederatedData:
    """Return clients of equal size with random images and labels of ten classes."""
    random = np.random.default_rng(0)
    n = n_clients * per_client
    return FederatedData(
        clients=tuple(str(k) for k in range(n_clients)),
        offsets=tuple(range(0, n + 1, per_client)),
        images=random.integers(0, 256, (n + 1, channels, size, size), dtype=np.uint8),
        image_rows=np.arange(n),
        given_labels=random.integers(0, 10, n),
        source_index=np.arange(n),
        test_rows=np.array([n]),
        test_labels=np.zeros(1, dtype=np.int64),
        class_names=tuple("0123456789"),
        preprocessing=Preprocessing((0.5,) * channels, (0.25,) * channels, flip=True, crop_padding=4),
        name="random",
        images_sha256="",
        sha256="",
        notes=(),
        truth=GroundTruth(None, (), (), is_known=False, transition=np.zeros((10, 10), np.int64)),
    )


@contextlib.contextmanager
def opened(
    data: FederatedData,
    *,
    method: str,
    model: str,
    workers: int,
    participation: float = 1.0,
    settings: dict[str, Any] | None = None,
    engine_name: str = "local",
) -> Iterator[tuple[AnyMethod, EngineFederation, Weights]]:
    """Open an engine on `data`: the method, its federation, and the initial model."""
    config = parse_config({"rounds": 100, "method": {"name": method, **(settings or {})}, "model": {"name": model}})
    first = initial_model(config.model, data, seed=0, data_dir=Path())
    chosen = method_class(method)(config.method)
    engine = engine_opener(engine_name, workers)(HostSpec(chosen, first.module, 0, "cpu", ClientStore.of(data)))
    with contextlib.closing(engine):
        fed = EngineFederation(
            engine,
            data.clients,
            chosen,
            seed=0,
            participation=participation,
            dropout=0.0,
            form=Form.of(first.weights, classes=data.n_classes, features=first.n_features),
        )
        yield chosen, fed, first.weights
