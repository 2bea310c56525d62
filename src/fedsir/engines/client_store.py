"""The clients' images and given labels, resident once per machine: an array, or a memory-mapped file for workers."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedsir.data.client import ClientData
from fedsir.errors import RunFolderError

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData


@dataclass(frozen=True)
class ClientStore:
    """Training samples sorted by client, so that a client's data are a view and never a copy; and the test images.

    When `folder` is set, the tensors are shared files in it: every process that maps them shares the same memory, and
    pickling the store (to start a worker) sends only their names.
    """

    rows_by_client: dict[str, tuple[int, int]]
    image_shape: tuple[int, int, int]
    n_test: int
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool
    crop_padding: int
    folder: Path | None
    _loaded: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, data: FederatedData, folder: Path | None = None) -> ClientStore:
        """Take over a federation's images; with `folder`, write them there for other processes to map."""
        tensors = {
            "images": torch.from_numpy(data.images),
            "labels": torch.from_numpy(data.given_labels),
            "test_images": torch.from_numpy(data.test_images),
        }
        rows = zip(data.clients, data.offsets[:-1], data.offsets[1:], strict=True)
        store = cls(
            rows_by_client={name: (start, stop) for name, start, stop in rows},
            image_shape=(data.channels, *data.image_size),
            n_test=len(data.test_labels),
            n_classes=data.n_classes,
            mean=data.mean,
            std=data.std,
            flip=data.flip,
            crop_padding=data.crop_padding,
            folder=folder,
        )
        if folder is None:
            store._loaded.update(tensors)
        else:
            for name, tensor in tensors.items():
                _write(folder / name, tensor)
        return store

    def client_data(self, client: str) -> ClientData:
        """Return one client's view."""
        start, stop = self.rows_by_client[client]
        return ClientData(
            images=self._tensor("images")[start:stop],
            labels=self._tensor("labels")[start:stop],
            n_classes=self.n_classes,
            mean=self.mean,
            std=self.std,
            flip=self.flip,
            crop_padding=self.crop_padding,
        )

    def test_images(self) -> Tensor:
        """Return the test images, (n_test, channels, h, w) uint8; their labels stay with the evaluator."""
        return self._tensor("test_images")

    def size(self, client: str) -> int:
        """Return how many samples a client has."""
        start, stop = self.rows_by_client[client]
        return stop - start

    def _tensor(self, name: str) -> Tensor:
        if name not in self._loaded:
            assert self.folder is not None, "a store without a folder holds its tensors from the start"
            n = max(stop for _, stop in self.rows_by_client.values())
            shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
                "images": (torch.uint8, (n, *self.image_shape)),
                "labels": (torch.int64, (n,)),
                "test_images": (torch.uint8, (self.n_test, *self.image_shape)),
            }
            self._loaded[name] = _mapped(self.folder / name, *shapes[name])
        return self._loaded[name]

    def __getstate__(self) -> dict[str, object]:
        assert self.folder is not None, "only a store in shared files can be sent to another process"
        return {**self.__dict__, "_loaded": {}}


def _write(path: Path, tensor: Tensor) -> None:
    # Not through the mapping: a full disk would then end the process with a bus error instead of a message.
    try:
        path.write_bytes(tensor.contiguous().numpy().data)
    except OSError as problem:
        raise RunFolderError(
            f"Could not write {path}, which workers share: {problem.strerror}. Make room, or use --workers 1."
        ) from None


def _mapped(path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Return a tensor whose memory is the file; all processes that map it share it."""
    return torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=dtype).view(shape)
