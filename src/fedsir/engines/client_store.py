"""The clients' images and given labels, resident once per machine: an array, or a memory-mapped file for workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedsir.data.client import ClientData

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData


@dataclass(frozen=True)
class ClientStore:
    """Training samples sorted by client, so that a client's data are a view and never a copy.

    When `folder` is set, the tensors are shared files in it: every process that maps them shares the same memory, and
    pickling the store (to start a worker) sends only their names.
    """

    rows_by_client: dict[str, tuple[int, int]]
    image_shape: tuple[int, int, int]
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool
    crop_padding: int
    folder: Path | None
    _loaded: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, data: FederatedData, folder: Path | None = None) -> ClientStore:
        """Take over a federation's training samples; with `folder`, write them there for other processes to map."""
        images = torch.from_numpy(data.images)
        labels = torch.from_numpy(data.given_labels)
        store = cls(
            rows_by_client={name: (rows.start, rows.stop) for name in data.clients if (rows := data.rows(name))},
            image_shape=(images.shape[1], images.shape[2], images.shape[3]),
            n_classes=data.n_classes,
            mean=data.mean,
            std=data.std,
            flip=data.flip,
            crop_padding=data.crop_padding,
            folder=folder,
        )
        if folder is None:
            store._loaded.update(images=images, labels=labels)
        else:
            for name, tensor in (("images", images), ("labels", labels)):
                shared = torch.from_file(str(folder / name), shared=True, size=tensor.numel(), dtype=tensor.dtype)
                shared.copy_(tensor.flatten())
        return store

    def client_data(self, client: str) -> ClientData:
        """Return one client's view."""
        if not self._loaded:
            self._map()
        start, stop = self.rows_by_client[client]
        return ClientData(
            images=self._loaded["images"][start:stop],
            labels=self._loaded["labels"][start:stop],
            n_classes=self.n_classes,
            mean=self.mean,
            std=self.std,
            flip=self.flip,
            crop_padding=self.crop_padding,
        )

    def size(self, client: str) -> int:
        """Return how many samples a client has."""
        start, stop = self.rows_by_client[client]
        return stop - start

    def _map(self) -> None:
        assert self.folder is not None, "a store without a folder holds its tensors from the start"
        n = max(stop for _, stop in self.rows_by_client.values())
        channels, height, width = self.image_shape
        images = torch.from_file(
            str(self.folder / "images"), shared=True, size=n * channels * height * width, dtype=torch.uint8
        )
        labels = torch.from_file(str(self.folder / "labels"), shared=True, size=n, dtype=torch.int64)
        self._loaded.update(images=images.view(n, *self.image_shape), labels=labels)

    def __getstate__(self) -> dict[str, object]:
        assert self.folder is not None, "only a store in shared files can be sent to another process"
        return {**self.__dict__, "_loaded": {}}
