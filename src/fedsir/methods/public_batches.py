"""Batches of public images, the same for everybody who knows the number they are drawn by, and training on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from fedsir.errors import MethodError
from fedsir.methods.base import Server
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from fedsir.methods.base import Client

Moments = dict[str, dict[str, "Tensor"]]  # of an optimiser, by number of the parameter


class PublicBatches:
    """Augmented batches in random order, all of one size: `batch_size`, or all public images if they are fewer.

    Without `n_batches` it is one pass, whose last batch is dropped if it is not whole; else as many passes as need be.
    Clients and server can only speak about the same pictures if they draw alike, so the draw is a number that the
    server sends round, not the client's own stream.
    """

    def __init__(self, where: Client | Server, draw: int, batch_size: int, n_batches: int | None = None) -> None:
        if where.public is None:
            raise MethodError("There are no public images: set data.public.")
        self._preprocessing = (where if isinstance(where, Server) else where.data).preprocessing
        self._public, self._device = where.public, where.device
        n = self.n_images = len(self._public)
        self.size = min(batch_size, n)
        per_pass = n // self.size
        self.n_batches = per_pass if n_batches is None else n_batches
        random = KeyedRandom(draw, ("public",))
        orders = [
            torch.randperm(n, generator=random.derive("order", i).for_torch(), device="cpu")[: per_pass * self.size]
            for i in range(-(-self.n_batches // per_pass))
        ]
        self._rows = torch.cat(orders)[: self.n_batches * self.size]
        self._crops = self._preprocessing.draw_crops(len(self._rows), random.derive("augment").for_torch())

    def images(self, start: int, stop: int) -> Iterator[Tensor]:
        """Yield batches number start, start + 1, … stop - 1, each (size, channels, h, w) float32 on the device."""
        some = slice(start * self.size, stop * self.size)
        # All of them cross over at once: a batch that was sent in its step would make the device wait in every step.
        images, crops = self._public[self._rows[some]].to(self._device), self._crops[some].to(self._device)
        for batch, crop in zip(images.split(self.size), crops.split(self.size), strict=True):
            yield self._preprocessing.normalise(self._preprocessing.cropped(batch, crop))


@torch.no_grad()
def answers_to(module: nn.Module, batches: Iterable[Tensor]) -> Tensor:
    """Return softmax(f(x)) batch by batch in training mode, (m, C): what a step on the same batch begins from.

    Running statistics of `module` move.
    """
    parts = []
    for images in batches:
        module.train(len(images) > 1)  # batch normalisation has no statistics of a single image
        parts.append(module(images).softmax(dim=1))
    return torch.cat(parts)


def learn(
    module: nn.Module,
    pairs: Iterable[tuple[Tensor, Tensor]],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    new_optimizer: Callable[[], Optimizer],
    *,
    is_training: bool = True,
    is_fresh: bool = False,
    moments: Moments | None = None,
) -> tuple[list[float], Moments]:
    """Take a step on each (images, targets); return the losses, and the optimiser's moments to go on with.

    Parameters
    ----------
    loss_of : maps logits (b, C) and targets to the loss
    is_training : whether batch normalisation uses and gathers statistics of these images
    is_fresh : whether every step has an optimiser of its own
    moments : what an earlier call returned
    """
    optimizer = new_optimizer()
    if moments is not None:
        state: dict[int, Any] = {int(i): values for i, values in moments.items()}
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    losses: list[Tensor] = []
    for images, targets in pairs:
        if is_fresh and losses:
            optimizer = new_optimizer()
        module.train(is_training and len(images) > 1)
        loss = loss_of(module(images), targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    kept = {str(i): dict(values) for i, values in optimizer.state_dict()["state"].items()}
    return torch.stack(losses).tolist(), kept
