"""A federation: what clients hold, and what only an evaluator may know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.data.arrays import fingerprint
from fedsir.data.noise import realised_transition
from fedsir.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from fedsir.data.arrays import Counts, Images, Index, Labels
    from fedsir.data.preprocessing import Preprocessing
    from fedsir.data.source import Source


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class GroundTruth:
    """What only evaluators get; nothing on the client side can reach it.

    Attributes
    ----------
    true_labels : (n,) in the order of `FederatedData`; None when unknown
    clean_clients, noisy_clients : names in the order of the federation; both empty when unknown
    is_known : False for own data without added noise: nobody can say there who is clean
    transition : (n_classes, n_classes) counts, true → given, over the noisy clients
    """

    true_labels: Labels | None
    clean_clients: tuple[str, ...]
    noisy_clients: tuple[str, ...]
    is_known: bool
    transition: Counts

    def __post_init__(self) -> None:
        _lock(self)


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single equality
class FederatedData:
    """The training samples sorted by client, and the test set; `from_arrays` and `load` make one.

    Images stay where the source has them, so that runs with other partitions of one source can share them; each sample
    knows its row. All arrays are read-only. An engine hands clients no more than a `ClientData`, which has no truth.

    Attributes
    ----------
    clients : names in the order of the federation; "0", "1", … if the samples were dealt
    offsets : (n_clients + 1,) client i owns rows ``offsets[i]:offsets[i + 1]``
    images : (m, channels, height, width), all of the source's
    image_rows : (n,) row of ``images`` of each training sample
    given_labels : (n,)
    source_index : (n,) position of each sample in the source's training set
    test_rows, test_labels : (n_test,) what the global model is judged on, by row of ``images``
    class_names, preprocessing, name, images_sha256 : as in `Source`
    sha256 : over images, rows, given labels, offsets, client and class names and the test set
    notes : what a user should know about how the data were read
    truth : for evaluators only
    sample_names : (n,) what the user knows each training sample by: its file, or its row; None for public data
    public_images : (p, channels, height, width) unlabelled images that everybody has, if any
    """

    clients: tuple[str, ...]
    offsets: tuple[int, ...]
    images: Images
    image_rows: Index
    given_labels: Labels
    source_index: Index
    test_rows: Index
    test_labels: Labels
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    name: str
    images_sha256: str
    sha256: str
    notes: tuple[str, ...]
    truth: GroundTruth
    sample_names: tuple[str, ...] | None = None
    public_images: Images | None = None

    def __post_init__(self) -> None:
        _lock(self)

    @classmethod
    def from_arrays(
        cls,
        images: Any,
        labels: Any,
        clients: Any,
        *,
        test: tuple[Any, Any] | None = None,
        true_labels: Any = None,
        class_names: Sequence[str] | None = None,
        name: str = "arrays",
        seed: int = 0,
        flip: bool = False,
        crop_padding: int | None = None,
        image_size: int | tuple[int, int] | None = None,
    ) -> FederatedData:
        """Return a federation of images in memory; they are copied.

        Arrays may be NumPy arrays, torch tensors, pandas columns or lists.

        Parameters
        ----------
        images : (n, h, w), (n, h, w, 1 or 3) or (n, 1 or 3, h, w), uint8, or floats in [0, 1], which become
            round(255 · value)
        labels : (n,) the given label of each image: whole numbers, or names of any hashable kind
        clients : (n,) who owns each image, of the same kinds
        test : images and labels to test on; if not given, a stratified fifth is held out, keyed by ``seed``
        true_labels : (n,) if known; scores need them. Held-out images are then tested against these
        class_names : the classes in order; labels are then these names, or their positions from 0. If not given, the
            classes are the distinct labels in natural order
        flip : whether a mirrored image means the same
        crop_padding : black pixels around an image before a random crop; an eighth of the height if not given
        image_size : side, or (height, width), that images are resized and cropped to
        """
        from fedsir.data.from_arrays import federation_from_arrays

        return federation_from_arrays(
            images,
            labels,
            clients,
            test=test,
            true_labels=true_labels,
            class_names=class_names,
            name=name,
            seed=seed,
            flip=flip,
            crop_padding=crop_padding,
            image_size=image_size,
        )

    @classmethod
    def load(
        cls,
        dataset: str | Path,
        *,
        seed: int = 0,
        data_dir: str | Path | None = None,
        download: bool = False,
        **settings: Any,
    ) -> FederatedData:
        """Return the federation of a data set, a folder ``client/class/image`` or an npz file.

        Parameters
        ----------
        dataset : a known data set, or a path
        data_dir : where published data sets lie
        download : fetch a published data set if it is not there
        settings : the fields of `DataConfig`, for instance ``alpha=0.5, noise_rate=0.4, n_clients=20``
        """
        from pydantic import ValidationError

        from fedsir.data.config import DataConfig
        from fedsir.data.dealing import load_federation
        from fedsir.settings import explain

        try:
            config = DataConfig(dataset=str(dataset), **settings)
        except ValidationError as problem:
            raise ConfigError(explain(problem, DataConfig, "")) from None
        return load_federation(config, seed=seed, data_dir=data_dir, download=download)

    def __repr__(self) -> str:
        n, h, w = len(self.given_labels), *self.image_size
        return (
            f"<FederatedData {self.name}: {self.n_clients} clients, {n:,} images of {h}×{w}, {self.n_classes} classes>"
        )

    @property
    def n_clients(self) -> int:
        """Number of clients."""
        return len(self.clients)

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """1 for grey images, 3 for colour."""
        return int(self.images.shape[1])

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return int(self.images.shape[2]), int(self.images.shape[3])

    @property
    def test_images(self) -> Images:
        """The images that the global model is judged on, (n_test, channels, height, width); a copy."""
        return self.images[self.test_rows]

    @property
    def size_by_client(self) -> dict[str, int]:
        """Number of training samples of each client."""
        return {name: int(n) for name, n in zip(self.clients, np.diff(self.offsets), strict=True)}

    @cached_property
    def _position(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.clients)}

    def rows(self, client: str) -> slice:
        """Return the rows of one client."""
        i = self._position[client]
        return slice(self.offsets[i], self.offsets[i + 1])

    def counts(self) -> Counts:
        """Return (n_clients, n_classes) counts of given labels."""
        return np.stack([np.bincount(self.given_labels[self.rows(k)], minlength=self.n_classes) for k in self.clients])

    def noise_by_client(self) -> dict[str, float] | None:
        """Return the share of wrong given labels of each client; None when the truth is not known."""
        if self.truth.true_labels is None:
            return None
        is_wrong = self.given_labels != self.truth.true_labels
        return {client: float(is_wrong[self.rows(client)].mean()) for client in self.clients}


def assemble(
    source: Source,
    clients: tuple[str, ...],
    sizes: Sequence[int],
    *,
    source_index: Index,
    given: Labels,
    true: Labels | None,
    noisy: Sequence[int],
    test: Index,
    public_images: Images | None = None,
    notes: Iterable[str] = (),
) -> FederatedData:
    """Return the federation of samples that have been dealt.

    Parameters
    ----------
    sizes : (n_clients,) samples of each client
    source_index, given, true : (n,) sorted by client; ``true`` is None when unknown
    noisy : numbers of the clients that have wrong labels
    test : positions in the source's test part
    """
    offsets = np.cumsum([0, *sizes])
    image_rows, test_rows, test_labels = (
        source.train_rows[source_index],
        source.test_rows[test],
        source.test_labels[test],
    )
    names = source.sample_names
    return FederatedData(
        clients=clients,
        offsets=tuple(offsets.tolist()),
        images=source.images,
        image_rows=image_rows,
        given_labels=given,
        source_index=source_index,
        test_rows=test_rows,
        test_labels=test_labels,
        class_names=source.class_names,
        preprocessing=source.preprocessing,
        name=source.name,
        images_sha256=source.images_sha256,
        sha256=fingerprint(
            images=(source.images_sha256,),
            image_rows=image_rows,
            given_labels=given,
            test_rows=test_rows,
            test_labels=test_labels,
            offsets=offsets,
            clients=clients,
            class_names=source.class_names,
            **({} if public_images is None else {"public_images": public_images}),
        ),
        notes=(*source.notes, *notes),
        truth=_truth(clients, offsets, given, true, noisy, source.n_classes),
        sample_names=None if names is None else tuple(names[i] for i in source_index),
        public_images=public_images,
    )


def _truth(
    clients: tuple[str, ...], offsets: Index, given: Labels, true: Labels | None, noisy: Sequence[int], n_classes: int
) -> GroundTruth:
    """Return what is known of the federation; ``given`` and ``true`` are in its order."""
    transition = np.zeros((n_classes, n_classes), np.int64)
    if true is None:
        return GroundTruth(None, (), (), is_known=False, transition=transition)
    for k in noisy:
        rows = slice(offsets[k], offsets[k + 1])
        transition += realised_transition(true[rows], given[rows], n_classes)
    return GroundTruth(
        true_labels=true,
        clean_clients=tuple(name for k, name in enumerate(clients) if k not in set(noisy)),
        noisy_clients=tuple(clients[k] for k in noisy),
        is_known=True,
        transition=transition,
    )


def _lock(holder: GroundTruth | FederatedData) -> None:
    """Make the arrays of a dataclass read-only: an edit in place would change the data for everybody."""
    for value in vars(holder).values():
        if isinstance(value, np.ndarray):
            value.setflags(write=False)
