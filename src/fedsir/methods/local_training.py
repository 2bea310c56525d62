"""What happens on a client: the one training loop all methods share, and streaming of features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsir.data.augment import augment, normalise
from fedsir.models.weights import weights_of
from fedsir.stages.relabel import References, Relabelling, relabel
from fedsir.stages.spectrum import ClassGrams

if TYPE_CHECKING:
    from fedsir.methods.base import Client, MethodConfig, Payload
    from fedsir.randomness import KeyedRandom

FEATURE_BATCH = 256
GRAM_BATCHES = 8


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


def train_locally(
    client: Client,
    module: nn.Module,
    loss_of: LossOf,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
) -> float:
    """Train `module` in place on the client's labels with a fresh Adam; return the mean loss per sample."""
    optimiser = torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
    total = torch.zeros((), device=client.device, dtype=torch.float64)
    n_seen = 0
    for epoch in range(epochs):
        for batch in shuffled_batches(client, batch_size, client.random.derive("epoch", epoch)):
            # BatchNorm has no statistics of a single sample: a client of one keeps the running ones.
            module.train(len(batch.index) > 1)
            loss = loss_of(module, batch)
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            total += loss.detach().to(torch.float64) * len(batch.index)
            n_seen += len(batch.index)
    return float(total) / max(n_seen, 1)


def trained_reply(client: Client, module: nn.Module, loss: float) -> Payload:
    """Return what every trained client sends: its model, its sample count, its mean loss."""
    return {"model": weights_of(module), "n_samples": len(client.data), "loss": loss}


@torch.no_grad()
def teacher_logits(teacher: nn.Module, images: Tensor) -> Tensor:
    """Return the logits of a frozen model, (b, C)."""
    logits: Tensor = teacher.eval()(images)
    return logits


def train_with(client: Client, module: nn.Module, loss_of: LossOf, config: MethodConfig) -> float:
    """Train for one round with the settings that every method has."""
    return train_locally(
        client,
        module,
        loss_of,
        epochs=config.epochs,
        batch_size=config.batch_size,
        lr=config.lr,
        weight_decay=config.weight_decay,
    )


def shuffled_batches(client: Client, batch_size: int, random: KeyedRandom) -> Iterator[Batch]:
    """Yield one epoch of augmented batches in random order; a last batch of one joins the one before it."""
    data, labels = client.data, client.labels
    order = torch.randperm(len(data), generator=random.derive("order").for_torch())
    generator = random.derive("augment").for_torch()
    chunks = list(order.split(batch_size))
    if len(chunks) > 1 and len(chunks[-1]) == 1:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    for index in chunks:
        images = augment(data.images[index], crop_padding=data.crop_padding, flip=data.flip, generator=generator).to(
            client.device
        )
        yield Batch(normalise(images, data.mean, data.std), labels[index].to(client.device), index.to(client.device))


@torch.inference_mode()
def stream_features(
    client: Client, module: nn.Module, *, is_augmented: bool = False
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (features (b, d), rows (b,)) in evaluation mode, in the order of the client's rows."""
    data = client.data
    generator = client.random.derive("feature-augment").for_torch()
    module.eval()
    for index in torch.arange(len(data)).split(FEATURE_BATCH):
        images = data.images[index]
        if is_augmented:
            images = augment(images, crop_padding=data.crop_padding, flip=data.flip, generator=generator)
        yield module.features(normalise(images.to(client.device), data.mean, data.std)), index  # type: ignore[operator]


def class_grams_of(client: Client, module: nn.Module, *, is_augmented: bool = False) -> ClassGrams:
    """Return the class Gram matrices of the client's features under its GIVEN labels, gathered as they stream by."""
    data = client.data
    grams: ClassGrams | None = None
    held: list[tuple[Tensor, Tensor]] = []
    for features, rows in stream_features(client, module, is_augmented=is_augmented):
        held.append((features.cpu(), data.labels[rows]))
        # With many classes a batch holds few samples of each: larger pieces make for better matrix products.
        if len(held) == GRAM_BATCHES or int(rows[-1]) == len(data) - 1:
            grams = grams or ClassGrams.zeros(data.n_classes, features.shape[1])
            grams.include(*(torch.cat(parts) for parts in zip(*held, strict=True)))
            held.clear()
    assert grams is not None, "a client has at least one sample"
    return grams


def relabel_client(client: Client, module: nn.Module, references: References, rule: str) -> Relabelling:
    """Correct the client's GIVEN labels from features under `module`; earlier corrections do not count."""
    parts = [
        relabel(features.cpu(), client.data.labels[rows], references, rule)
        for features, rows in stream_features(client, module)
    ]
    return Relabelling(torch.cat([part.labels for part in parts]), torch.cat([part.is_undecided for part in parts]))
