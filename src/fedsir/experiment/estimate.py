"""What a run would hold and cost: the data as they would be dealt, and an estimate from two timed training steps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from fedsir.data.directory import data_directory
from fedsir.data.federation import build_federation
from fedsir.data.source import load_source
from fedsir.experiment.evaluation import describe_data
from fedsir.methods.registry import method_class
from fedsir.models.build import build_model, training_model
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData
    from fedsir.experiment.config import RunConfig

# Copies of a model alive on a worker: student, gradients, two Adam moments, teacher, template, bytes in and out.
MODELS_PER_WORKER = 8
# A forward pass costs about a third of a training step.
FORWARD_SHARE = 1 / 3


def plan_run(
    config: RunConfig, *, workers: int, data_dir: Path | None = None, download: bool = False
) -> dict[str, Any]:
    """Return data.json's content for these settings, with an estimate of time and memory; trains nothing."""
    source = load_source(config.data.dataset, data_dir=data_directory(data_dir), seed=config.seed, download=download)
    data, truth = build_federation(config.data, source, seed=config.seed)
    return describe_data(data, truth) | {"estimate": estimate(config, data, workers)}


def estimate(config: RunConfig, data: FederatedData, workers: int) -> dict[str, Any]:
    """Return expected seconds, memory, bytes per model, and the speed they rest on."""
    seconds_per_image, model_bytes = _time_training(config, data)
    epochs = method_class(config.method.name)(config.method).equivalent_epochs(config.rounds)
    n_train = len(data.given_labels)
    training = n_train * config.participation * epochs * seconds_per_image / workers
    n_evaluations = config.rounds // config.evaluate_every + 1
    testing = len(data.test_labels) * n_evaluations * seconds_per_image * FORWARD_SHARE / workers
    participants = max(1, round(config.participation * data.n_clients))
    memory = (
        data.images.nbytes
        + data.test_images.nbytes
        + model_bytes * (MODELS_PER_WORKER * workers + 2 * participants)
        + 400e6 * (workers + 1)  # Python and torch themselves, per process
    )
    return {
        "seconds": training + testing,
        "memory_bytes": memory,
        "model_bytes": model_bytes,
        "images_per_second": 1 / seconds_per_image,
        "workers": workers,
    }


def _time_training(config: RunConfig, data: FederatedData) -> tuple[float, int]:
    """Return seconds per image of a training step on one core, and the bytes of the model."""
    torch.set_num_threads(1)
    stock = build_model(
        config.model,
        n_classes=data.n_classes,
        in_channels=data.channels,
        random=KeyedRandom(config.seed, ("model",)),
        image_size=data.image_size,
    )
    module = training_model(stock, config.model.name, data.image_size)
    batch = min(config.method.batch_size, 64)
    images = torch.zeros(batch, data.channels, *data.image_size)
    labels = torch.arange(batch) % data.n_classes
    optimiser = torch.optim.Adam(module.parameters(), fused=True)
    times = []
    for _ in range(3):  # the first pays for memory that later ones find
        began = time.perf_counter()
        loss = F.cross_entropy(module(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - began)
    model_bytes = sum(tensor.numel() * tensor.element_size() for tensor in weights_of(module).values())
    return min(times[1:]) / batch, model_bytes
