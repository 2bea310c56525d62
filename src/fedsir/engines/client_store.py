"""The clients' images and given labels, for whichever process runs a client's half."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedsir.data.client import ClientData
from fedsir.engines.shared_images import shared

if TYPE_CHECKING:
    from fedsir.data.arrays import Images, Index, Labels
    from fedsir.data.federation import FederatedData
    from fedsir.data.preprocessing import Preprocessing


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class ClientStore:
    """A federation's small arrays, and its images.

    Attributes
    ----------
    rows_by_client : client → its part of `labels` and `image_rows`
    labels : (n,) given labels, sorted by client
    image_rows, test_rows : (n,), (n_test,) rows of the images
    images : (m, channels, height, width) uint8
    public_images : (p, channels, height, width) unlabelled images that everybody has; few enough to send
    """

    rows_by_client: dict[str, tuple[int, int]]
    labels: Labels
    image_rows: Index
    test_rows: Index
    images: Images
    n_classes: int
    preprocessing: Preprocessing
    public_images: Images | None = None

    @classmethod
    def of(cls, data: FederatedData) -> ClientStore:
        """Return the store of a federation."""
        rows = zip(data.clients, data.offsets[:-1], data.offsets[1:], strict=True)
        return cls(
            rows_by_client={name: (start, stop) for name, start, stop in rows},
            labels=data.given_labels,
            image_rows=data.image_rows,
            test_rows=data.test_rows,
            images=data.images,
            n_classes=data.n_classes,
            preprocessing=data.preprocessing,
            public_images=data.public_images,
        )

    def shared(self) -> ClientStore:
        """Return the same store, small to send: worker processes map its images."""
        return replace(self, images=shared(self.images))

    def client_data(self, client: str) -> ClientData:
        """Return one client's samples, copied together: a copy costs far less than a pass of training."""
        start, stop = self.rows_by_client[client]
        return ClientData(
            images=self._pick(self.image_rows[start:stop]),
            labels=torch.from_numpy(self.labels[start:stop].copy()),
            n_classes=self.n_classes,
            preprocessing=self.preprocessing,
        )

    def test_images(self, start: int, stop: int) -> Tensor:
        """Return a slice of the test images, (stop - start, channels, h, w); their labels stay with the evaluator."""
        return self._pick(self.test_rows[start:stop])

    def public(self) -> Tensor | None:
        """Return the unlabelled images that everybody has, (p, channels, h, w), if any."""
        return None if self.public_images is None else torch.from_numpy(self.public_images.copy())

    def size(self, client: str) -> int:
        """Return how many samples a client has."""
        start, stop = self.rows_by_client[client]
        return stop - start

    def _pick(self, rows: Index) -> Tensor:
        return torch.from_numpy(self.images[rows])
