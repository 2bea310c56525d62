"""What a run would hold and cost: the data as they would be dealt, and an estimate from two timed training steps."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import nn

from fedsir.data.dealing import load_federation
from fedsir.data.directory import data_directory
from fedsir.engines.device_settings import prepared
from fedsir.engines.federation import n_participants
from fedsir.engines.replies import MEMORY as REPLIES_IN_MEMORY
from fedsir.engines.wire import decode, encode
from fedsir.methods.registry import method_class
from fedsir.models.initial import initial_model
from fedsir.models.weights import load_weights, weights_of
from fedsir.randomness import KeyedRandom
from fedsir.simulation.evaluation import describe_data

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData
    from fedsir.runs.config import RunConfig

# Copies of a model alive on a worker: student, gradients, two Adam moments, teacher, template, bytes in and out.
MODELS_PER_WORKER = 8
# On the server: the global one and its bytes, float64 sums, last round's clean average, a few that are compared.
MODELS_ON_SERVER = 10
FORWARD_SHARE = 1 / 3  # of a training step is its forward pass


def plan_run(
    config: RunConfig, *, workers: int, data_dir: Path | None = None, download: bool = False
) -> dict[str, Any]:
    """Return data.json's content for these settings, with an estimate of time and memory; trains nothing."""
    data = load_federation(config.data, seed=config.seed, data_dir=data_dir, download=download)
    method_class(config.method.name)(config.method).check(data.counts())
    with prepared("cpu"):
        # With its pretrained weights: a run that would not find them must not look possible.
        module = initial_model(
            config.model, data, seed=config.seed, data_dir=data_directory(data_dir), download=download
        ).module
        return describe_data(data) | {"estimate": estimate(config, data, module, workers)}


def estimate(config: RunConfig, data: FederatedData, module: nn.Module, workers: int) -> dict[str, Any]:
    """Return expected seconds, memory, bytes per model, and the speed they rest on; trains `module` a little.

    The time is that of plain training with the method's settings. What a method does beside it (Stage I, a teacher,
    public images) is not counted: the first rounds of the run itself tell.
    """
    seconds_per_image, seconds_per_call, model_bytes = _time_training(config, data, module)
    n_drawn = n_participants(config.participation, data.n_clients)
    n_images = config.rounds * config.method.epochs * config.participation * len(data.given_labels)
    training = (n_images * seconds_per_image + config.rounds * n_drawn * seconds_per_call) / min(workers, n_drawn)
    n_evaluations = config.rounds // config.evaluate_every + 1
    testing = len(data.test_labels) * n_evaluations * seconds_per_image * FORWARD_SHARE / workers
    memory = (
        data.images.nbytes  # of training and test
        + model_bytes * (MODELS_PER_WORKER * workers + MODELS_ON_SERVER)
        + min(REPLIES_IN_MEMORY, model_bytes * n_drawn)
        + 400e6 * (workers + 1)  # Python and torch themselves, per process
    )
    return {
        "seconds": training + testing,
        "memory_bytes": memory,
        "model_bytes": model_bytes,
        "images_per_second": 1 / seconds_per_image,
        "workers": workers,
    }


def _time_training(config: RunConfig, data: FederatedData, module: nn.Module) -> tuple[float, float, int]:
    """Return seconds per image of a training step on one core, seconds per call of a client, and a model's bytes."""
    batch = min(config.method.batch_size, 64)
    images = torch.zeros(batch, data.channels, *data.image_size, dtype=torch.uint8)
    generator = KeyedRandom(config.seed).for_torch()
    labels = torch.arange(batch) % data.n_classes
    optimiser = torch.optim.Adam(module.parameters(), fused=True)
    times = []
    for _ in range(3):  # the first pays for memory that later ones find
        began = time.perf_counter()
        views = data.preprocessing.augment(images, generator)
        loss = F.cross_entropy(module(data.preprocessing.normalise(views)), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        times.append(time.perf_counter() - began)
    model_bytes = sum(tensor.numel() * tensor.element_size() for tensor in weights_of(module).values())
    return min(times[1:]) / batch, _time_call(module), model_bytes


def _time_call(module: nn.Module) -> float:
    """Return seconds that a client's call takes beside training: with a few samples each, it is most of them."""
    times = []
    for _ in range(3):
        began = time.perf_counter()
        sent = encode(weights_of(module))
        copied = copy.deepcopy(module)
        load_weights(copied, decode(sent))
        torch.optim.Adam(copied.parameters(), fused=True)
        decode(encode(weights_of(copied)))
        times.append(time.perf_counter() - began)
    return min(times)
