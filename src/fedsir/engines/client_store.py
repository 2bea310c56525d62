"""The clients' images and given labels, for whichever process runs a client's half."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field, replace
from multiprocessing import reduction
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedsir.data.client import ClientData
from fedsir.errors import RunFolderError

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
    _file: IO[bytes] | None = field(default=None, repr=False)  # holds the images, where worker processes share them

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
        """Return the same store with its images in a file that worker processes map: in memory once for all of them.

        The file has no name, so nothing is left behind however these processes end.
        """
        if sys.platform == "win32":  # an open file cannot be handed on there: each worker gets a copy
            return self
        try:
            file = tempfile.TemporaryFile(prefix="fedsir-images-")  # noqa: SIM115 - lives as long as the store
            file.write(np.ascontiguousarray(self.images).data)
            file.flush()
        except OSError as problem:
            raise RunFolderError(
                f"Could not write the images that workers share to {tempfile.gettempdir()}: {problem.strerror}. Make "
                "room, name another folder for temporary files with TMPDIR, or use --workers 1."
            ) from None
        return replace(self, images=_mapped(file, self.images.shape), _file=file)

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

    def __getstate__(self) -> dict[str, Any]:
        if self._file is None:
            return self.__dict__
        sent = reduction.DupFd(self._file.fileno())
        return {**self.__dict__, "images": self.images.shape, "_file": sent}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state["_file"] is not None:
            file = open(state["_file"].detach(), "rb")  # noqa: SIM115, PTH123 - a descriptor, kept open
            state = {**state, "images": _mapped(file, state["images"]), "_file": file}
        self.__dict__.update(state)


def _mapped(file: IO[bytes], shape: tuple[int, ...]) -> Images:
    """Return the images in a file without reading them: pages are in memory once, whoever maps them."""
    return np.asarray(np.memmap(file, np.uint8, mode="r", shape=shape))
