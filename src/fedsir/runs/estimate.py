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
from fedsir.models.config import imagenet_file
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
# What a step needs at its peak, of what autograd keeps for the backward pass: gradients of maps come on top.
STEP_SHARE = 2
PROCESS = 400e6  # Python and torch themselves
TIMED_BYTES = 256e6  # kept for the backward pass of a step that is timed: a plan should not need a run's memory


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
        planned = describe_data(data) | {"estimate": estimate(config, data, module, workers)}
    if config.model.name == "strided_cnn" and imagenet_file(data_directory(data_dir)) is None:
        planned["notes"].append("ImageNet weights are not in the data directory; --download fetches them for ResNet-18")
    return planned


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
    largest = max(data.size_by_client.values())
    # A client's images are copied together; of a batch, autograd keeps the maps.
    per_worker = largest * data.images[0].nbytes + STEP_SHARE * min(config.method.batch_size, largest) * kept_bytes(
        data, module
    )
    n_processes = 1 if workers == 1 else workers + 1  # one worker is the process itself
    memory = (
        data.images.nbytes  # of training and test
        + model_bytes * (MODELS_PER_WORKER * workers + MODELS_ON_SERVER)
        + min(REPLIES_IN_MEMORY, model_bytes * n_drawn)
        + per_worker * workers
        + PROCESS * n_processes
    )
    return {
        "seconds": training + testing,
        "memory_bytes": memory,
        "model_bytes": model_bytes,
        "images_per_second": 1 / seconds_per_image,
        "model": config.model.name,
        "workers": workers,
    }


def _time_training(config: RunConfig, data: FederatedData, module: nn.Module) -> tuple[float, float, int]:
    """Return seconds per image of a training step on one core, seconds per call of a client, and a model's bytes."""
    affordable = int(TIMED_BYTES / max(1, kept_bytes(data, module)))
    batch = max(2, min(config.method.batch_size, 64, affordable))
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


def kept_bytes(data: FederatedData, module: nn.Module) -> int:
    """Return the bytes per image that autograd keeps between the forward and the backward pass of a training step."""
    kept: dict[int, int] = {}  # by address: some maps are kept by more than one operation
    of_model = {tensor.untyped_storage().data_ptr() for tensor in module.state_dict().values()}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in of_model:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    images = torch.zeros(2, data.channels, *data.image_size)  # two: batch normalisation compares
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        logits = module.train()(images)
    n_bytes = sum(kept.values()) // len(images)
    del logits  # until here it held what was counted
    return n_bytes


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
