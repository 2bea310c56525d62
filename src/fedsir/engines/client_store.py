"""The clients' images and given labels, for whichever process runs a client's half."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedsir.data.client import ClientData
from fedsir.engines.shared_images import mapped

if TYPE_CHECKING:
    from fedsir.data.arrays import Images, Index, Labels
    from fedsir.data.federation import FederatedData


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class ClientStore:
    """A run's own small arrays, and the images of its source, which other processes and runs may share.

    When `file` is set, the images are in it: pickling the store (to start a worker) sends only its name.

    Attributes
    ----------
    rows_by_client : client → its part of `labels` and `image_rows`
    labels : (n,) given labels, sorted by client
    image_rows, test_rows : (n,), (n_test,) rows of the images
    images_shape : (m, channels, height, width)
    public_images : (p, channels, height, width) unlabelled images that everybody has; few enough to send
    """

    rows_by_client: dict[str, tuple[int, int]]
    labels: Labels
    image_rows: Index
    test_rows: Index
    images_shape: tuple[int, ...]
    n_classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool
    crop_padding: int
    file: Path | None
    public_images: Images | None = None
    _images: list[Tensor] = field(default_factory=list)  # none until they are wanted, then one

    @classmethod
    def of(cls, data: FederatedData, file: Path | None = None) -> ClientStore:
        """Return the store of a federation; `file`, if any, holds its images."""
        rows = zip(data.clients, data.offsets[:-1], data.offsets[1:], strict=True)
        return cls(
            rows_by_client={name: (start, stop) for name, start, stop in rows},
            labels=data.given_labels,
            image_rows=data.image_rows,
            test_rows=data.test_rows,
            images_shape=data.images.shape,
            n_classes=data.n_classes,
            mean=data.mean,
            std=data.std,
            flip=data.flip,
            crop_padding=data.crop_padding,
            file=file,
            public_images=data.public_images,
            _images=[torch.from_numpy(data.images)],
        )

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return self.images_shape[2], self.images_shape[3]

    def client_data(self, client: str) -> ClientData:
        """Return one client's samples, copied together: a copy costs far less than a pass of training."""
        start, stop = self.rows_by_client[client]
        return ClientData(
            images=self._pick(self.image_rows[start:stop]),
            labels=torch.from_numpy(self.labels[start:stop]),
            n_classes=self.n_classes,
            mean=self.mean,
            std=self.std,
            flip=self.flip,
            crop_padding=self.crop_padding,
        )

    def test_images(self, start: int, stop: int) -> Tensor:
        """Return a slice of the test images, (stop - start, channels, h, w); their labels stay with the evaluator."""
        return self._pick(self.test_rows[start:stop])

    def public(self) -> Tensor | None:
        """Return the unlabelled images that everybody has, (p, channels, h, w), if any."""
        return None if self.public_images is None else torch.from_numpy(self.public_images)

    def size(self, client: str) -> int:
        """Return how many samples a client has."""
        start, stop = self.rows_by_client[client]
        return stop - start

    def _pick(self, rows: Index) -> Tensor:
        if not self._images:
            assert self.file is not None, "a store that came from another process has a file"
            self._images.append(torch.from_numpy(mapped(self.file, self.images_shape)))
        return self._images[0].index_select(0, torch.from_numpy(rows))

    def __getstate__(self) -> dict[str, object]:
        assert self.file is not None, "only a store with a file can be sent to another process"
        return {**self.__dict__, "_images": []}
