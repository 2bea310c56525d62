"""What happens on a client: the one training loop all methods share, and streaming of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from fedsir.data.preprocessing import images_at_once
from fedsir.methods.replies import Trained
from fedsir.models.weights import weights_of
from fedsir.stages.relabel import References, relabel
from fedsir.stages.spectrum import ClassFeatures

if TYPE_CHECKING:
    from fedsir.methods.base import AnyMethod, Client
    from fedsir.methods.settings import MethodConfig
    from fedsir.randomness import KeyedRandom

HELD_BATCHES = 16


@dataclass(frozen=True)
class Batch:
    """Samples of one step.

    images : (b, channels, h, w) float32, augmented and normalised
    labels : (b,) int64
    index : (b,) int64, rows of the client's data
    """

    images: Tensor
    labels: Tensor
    index: Tensor


LossOf = Callable[[nn.Module, Batch], Tensor]


def cross_entropy(module: nn.Module, batch: Batch) -> Tensor:
    """Return the plain loss of FedAvg."""
    return F.cross_entropy(module(batch.images), batch.labels)


def trained(client: Client, module: nn.Module, loss: float) -> Trained:
    """Return what every trained client sends: its model, its sample count, its mean loss."""
    return Trained(weights_of(module), len(client.data), loss)


@torch.no_grad()
def teacher_logits(teacher: nn.Module, images: Tensor) -> Tensor:
    """Return the logits of a frozen model, (b, C)."""
    logits: Tensor = teacher.eval()(images)
    return logits


def train_with(
    method: AnyMethod,
    client: Client,
    module: nn.Module,
    loss_of: LossOf,
    *,
    epochs: int | None = None,
    lr: float | None = None,
    weight_decay: float | None = None,
) -> float:
    """Train `module` in place on the client's labels; return the mean loss per sample.

    Settings are the method's, or others where they are given.
    """
    config = method.config
    optimizer = method.optimizer(
        module.parameters(),
        lr=config.lr if lr is None else lr,
        weight_decay=config.weight_decay if weight_decay is None else weight_decay,
    )
    losses: list[Tensor] = []
    sizes: list[int] = []
    for epoch in range(config.epochs if epochs is None else epochs):
        for batch in shuffled_batches(client, config.batch_size, client.random.derive("epoch", epoch)):
            # BatchNorm has no statistics of a single sample: a client of one keeps the running ones.
            module.train(len(batch.index) > 1)
            loss = loss_of(module, batch)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            sizes.append(len(batch.index))
    return _mean_per_sample(losses, sizes)


def _mean_per_sample(losses: list[Tensor], sizes: list[int]) -> float:
    # Read once at the end: a number read in every step would make the host wait for the device in every step.
    values = torch.stack(losses).tolist()
    return float(sum(value * n for value, n in zip(values, sizes, strict=True)) / sum(sizes))


def make_optimizer(config: MethodConfig, parameters: Iterable[Tensor], *, lr: float, weight_decay: float) -> Optimizer:
    """Return a fresh optimiser of the kind that the settings name."""
    # torch has fused kernels for cpu, cuda and mps, which are all that --device takes.
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=lr, momentum=config.momentum, weight_decay=weight_decay, fused=True)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, lr=lr, weight_decay=weight_decay, fused=True)


def shuffled_batches(client: Client, batch_size: int, random: KeyedRandom) -> Iterator[Batch]:
    """Yield one epoch of augmented batches in random order; a last batch of one joins the one before it.

    What is random is drawn on the CPU, so that it is the same on any device, and sent there once for the epoch.
    """
    data, device, images, preprocessing = client.data, client.device, client.images, client.data.preprocessing
    order = torch.randperm(len(data), generator=random.derive("order").for_torch(), device="cpu")
    generator = random.derive("augment").for_torch()
    crops = preprocessing.draw_crops(len(data), generator).to(device)
    labels, index = client.labels.to(device), order.to(device)
    rows = order if images is data.images else index  # on the side where the images are
    sizes = [len(chunk) for chunk in order.split(batch_size)]
    if len(sizes) > 1 and sizes[-1] == 1:
        sizes[-2:] = [sizes[-2] + 1]
    for some_rows, some, crop in zip(rows.split(sizes), index.split(sizes), crops.split(sizes), strict=True):
        batch = preprocessing.cropped(images[some_rows].to(device), crop)
        yield Batch(preprocessing.normalise(batch), labels[some], some)


class StepDraws:
    """Uniform numbers in [0, 1), `width` for each sample of each epoch, in the order of training.

    They are drawn on the CPU, so that they are the same on any device, and sent there at once. The batch size moves no
    draw: the i-th sample that is trained on gets the i-th row.
    """

    def __init__(self, client: Client, name: str, epochs: int, width: int) -> None:
        generator = client.random.derive(name).for_torch()
        drawn = torch.rand(epochs * len(client.data), width, generator=generator, device="cpu")
        self._rows = drawn.to(client.device)
        self._next = 0

    def take(self, n: int) -> Tensor:
        """Return the next n rows, (n, width), on the client's device."""
        start, self._next = self._next, self._next + n
        return self._rows[start : self._next]


@torch.inference_mode()
def stream_features(
    client: Client, module: nn.Module, *, is_augmented: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (features (b, d) on the device, rows (b,) on the CPU) in evaluation mode, in the order of the rows."""
    data = client.data
    generator = client.random.derive("feature-augment").for_torch()
    module.eval()
    step = images_at_once(data.images)
    for start in range(0, len(data), step):
        images = client.images[start : start + step].to(client.device)
        if is_augmented:
            images = data.preprocessing.augment(images, generator)
        rows = torch.arange(start, start + len(images), device="cpu")
        yield module.features(data.preprocessing.normalise(images)), rows  # type: ignore[operator]


@torch.no_grad()
def logits_of(client: Client, module: nn.Module, *, is_augmented: bool = False) -> Tensor:
    """Return f(x) of all the client's samples, (n, C) on the device, in evaluation mode."""
    stream = stream_features(client, module, is_augmented=is_augmented)
    return torch.cat([module.head(features) for features, _ in stream])  # type: ignore[operator]


def predictions(client: Client, module: nn.Module, *, is_augmented: bool = False) -> Tensor:
    """Return softmax(f(x)) of all the client's samples, (n, C) on the device, in evaluation mode."""
    return logits_of(client, module, is_augmented=is_augmented).softmax(dim=1)


def sure_labels(client: Client, module: nn.Module, temperature: float, confidence: float) -> tuple[Tensor, Tensor]:
    """Return the classes that a model gives the client's samples, and where softmax(f / τ) is so sure, (n,) each."""
    certainty, predicted = (logits_of(client, module) / temperature).softmax(dim=1).max(dim=1)
    return predicted.cpu(), (certainty >= confidence).cpu()


@torch.no_grad()
def training_predictions(client: Client, module: nn.Module, batch_size: int) -> Tensor:
    """Return softmax(f(x)) as a training epoch sees it, (n, C) on the device: augmented batches in training mode.

    Running statistics of `module` move with every batch, as in training.
    """
    parts, rows = [], []
    for batch in shuffled_batches(client, batch_size, client.random.derive("training-predictions")):
        module.train(len(batch.index) > 1)
        parts.append(module(batch.images).softmax(dim=1))
        rows.append(batch.index)
    return torch.cat(parts)[torch.cat(rows).argsort()]


@torch.no_grad()
def training_loss(client: Client, module: nn.Module, loss_of: LossOf, batch_size: int) -> float:
    """Return the mean loss per sample as a training epoch sees it, without a step; running statistics move."""
    losses, sizes = [], []
    for batch in shuffled_batches(client, batch_size, client.random.derive("training-loss")):
        module.train(len(batch.index) > 1)
        losses.append(loss_of(module, batch))
        sizes.append(len(batch.index))
    return _mean_per_sample(losses, sizes)


def mean_loss_by_class(client: Client, module: nn.Module, *, is_augmented: bool = False) -> Tensor:
    """Return the mean cross-entropy of the samples of each GIVEN label in evaluation mode, (C,); NaN without any."""
    given = client.data.labels
    logits = logits_of(client, module, is_augmented=is_augmented)
    losses = F.cross_entropy(logits, given.to(client.device), reduction="none").cpu().to(torch.float64)
    n_classes = client.data.n_classes
    sums, counts = torch.bincount(given, losses, n_classes), torch.bincount(given, minlength=n_classes)
    return sums / counts


def class_features_of(client: Client, module: nn.Module, *, is_augmented: bool = False) -> ClassFeatures:
    """Return the client's features by GIVEN label, gathered as they stream by."""
    data = client.data
    collected: ClassFeatures | None = None
    held: list[tuple[Tensor, Tensor]] = []
    for features, rows in stream_features(client, module, is_augmented=is_augmented):
        held.append((features, data.labels[rows]))
        # With many classes a batch holds few samples of each: larger pieces make for better matrix products, and for
        # fewer moves to the CPU, where the sums are.
        if len(held) == HELD_BATCHES or int(rows[-1]) == len(data) - 1:
            collected = collected or ClassFeatures(data.n_classes, features.shape[1])
            collected.include(*(torch.cat(parts).cpu().numpy() for parts in zip(*held, strict=True)))
            held.clear()
    assert collected is not None, "a client has at least one sample"
    return collected


def relabel_client(client: Client, module: nn.Module, references: References, rule: str) -> tuple[Tensor, Tensor]:
    """Return corrected labels and where the scores disagree, (n,) each, from features under `module`.

    The client's GIVEN labels are corrected; earlier corrections do not count.
    """
    given = client.data.labels.numpy()
    parts = [
        relabel(features.cpu().numpy(), given[rows.numpy()], references, rule)
        for features, rows in stream_features(client, module)
    ]
    labels, is_undecided = zip(*((part.labels, part.is_undecided) for part in parts), strict=True)
    return torch.from_numpy(np.concatenate(labels)), torch.from_numpy(np.concatenate(is_undecided))
