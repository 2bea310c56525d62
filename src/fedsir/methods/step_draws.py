"""Random numbers for the steps of local training: drawn on the CPU at once, handed out batch by batch on the device.

A number drawn for each step would have to be sent to the device in each step; and the device's own generator would give
other numbers than the CPU's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from fedsir.methods.base import Client


class StepDraws:
    """Uniform numbers in [0, 1), `width` for each sample of each epoch, in the order of training.

    The batch size moves no draw: the i-th sample that is trained on gets the i-th row.
    """

    def __init__(self, client: Client, name: str, epochs: int, width: int) -> None:
        generator = client.random.derive(name).for_torch()
        drawn = torch.rand(epochs * len(client.data), width, generator=generator, device="cpu")
        self._rows = drawn.to(client.device)
        self._next = 0

    def take(self, n: int) -> Tensor:
        """Return the next n rows, (n, width), on the client's device."""
        start, self._next = self._next, self._next + n
        if self._next > len(self._rows):
            raise ValueError(f"{self._next} draws were asked for, but only {len(self._rows)} were made")
        return self._rows[start : self._next]
