"""A federation: what clients hold, and, kept apart, what only an evaluator may know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from fedsir.data import noise, partition
from fedsir.data.arrays import fingerprint
from fedsir.data.cover import choose_noisy_clients, default_cover_min_samples
from fedsir.data.labels_file import read_labels_file
from fedsir.data.public import HELD_OUT, draw_public, hold_out
from fedsir.data.stratify import draw_by_class, quota_by_class
from fedsir.errors import ConfigError, DataError
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    from fedsir.data.arrays import Counts, Images, Index, Labels, Names
    from fedsir.data.config import DataConfig
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


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class FederatedData:
    """The training samples sorted by client, with given labels only, and the test set.

    Images stay where the source has them, so that runs with other partitions of one source can share them; each sample
    knows its row.

    Attributes
    ----------
    clients : names in the order of the federation; "0", "1", … if the samples were dealt
    offsets : (n_clients + 1,) client i owns rows ``offsets[i]:offsets[i + 1]``
    images : (m, channels, height, width), all of the source's
    image_rows : (n,) row of ``images`` of each training sample
    given_labels : (n,)
    source_index : (n,) position of each sample in the source's training set
    test_rows, test_labels : (n_test,) what the global model is judged on, by row of ``images``
    class_names, mean, std, flip, crop_padding, name : as in `Source`
    sha256 : over images, rows, given labels, offsets, client and class names and the test set
    notes : what a user should know about how the data were read
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
    mean: tuple[float, ...]
    std: tuple[float, ...]
    flip: bool
    crop_padding: int
    name: str
    sha256: str
    notes: tuple[str, ...]
    public_images: Images | None = None

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


def noise_by_client(data: FederatedData, truth: GroundTruth) -> dict[str, float] | None:
    """Return the share of wrong given labels of each client; None when the truth is not known."""
    if truth.true_labels is None:
        return None
    is_wrong = data.given_labels != truth.true_labels
    return {client: float(is_wrong[data.rows(client)].mean()) for client in data.clients}


def build_federation(
    config: DataConfig, source: Source, *, seed: int, public: Images | None = None
) -> tuple[FederatedData, GroundTruth]:
    """Return the federation that ``config`` describes: draw a subset, deal it, make labels wrong.

    ``public`` holds the images that `load_public` found.
    """
    random = KeyedRandom(seed, ("data",))
    kept = _subset(source.train_labels, config.n_train, "n_train", random, source.clients)
    test = _subset(source.test_labels, config.n_test, "n_test", random)
    public_images = None if public is None else draw_public(config, public, source.images.shape[1:], random)
    if config.public == HELD_OUT:
        held = hold_out(
            config, source.train_labels[kept], random, None if source.clients is None else source.clients[kept]
        )
        public_images = source.images[source.train_rows[kept[held]]]
        kept = np.delete(kept, held)
    true = source.train_labels[kept]
    owners = None if source.clients is None else source.clients[kept]
    names, parts = _deal(config, true, owners, source, seed, random)
    counts = np.stack([np.bincount(true[part], minlength=source.n_classes) for part in parts])
    noisy: tuple[int, ...] = ()
    given = true
    if config.adds_noise:
        threshold = config.cover_min_samples or default_cover_min_samples(len(true), source.n_classes)
        chooser = random.derive("noisy clients")
        noisy = choose_noisy_clients(config.noisy_clients, names, counts, threshold, chooser)
        given = _given_labels(config, source, kept, parts, names, noisy, seed, random)
    is_right = {k for k in noisy if np.array_equal(given[parts[k]], true[parts[k]])}
    in_vain = [names[k] for k in noisy if k in is_right]
    has_rate = config.adds_noise and config.noise in ("symmetric", "pair")
    mine = np.concatenate([parts[k] for k in noisy]) if noisy else np.empty(0, np.int64)
    notes = noise.notes(in_vain, true[mine], given[mine], config.noise_rate if has_rate else None)

    order = np.concatenate(parts)
    image_rows, given = source.train_rows[kept[order]], given[order]
    test_rows, test_labels = source.test_rows[test], source.test_labels[test]
    offsets = np.cumsum([0, *map(len, parts)])
    data = FederatedData(
        clients=names,
        offsets=tuple(offsets.tolist()),
        images=source.images,
        image_rows=image_rows,
        given_labels=given,
        source_index=kept[order],
        test_rows=test_rows,
        test_labels=test_labels,
        class_names=source.class_names,
        mean=source.mean,
        std=source.std,
        flip=source.flip,
        crop_padding=source.crop_padding,
        name=source.name,
        sha256=fingerprint(
            images=(source.images_sha256,),
            image_rows=image_rows,
            given_labels=given,
            test_rows=test_rows,
            test_labels=test_labels,
            offsets=offsets,
            clients=names,
            class_names=source.class_names,
            **({} if public_images is None else {"public_images": public_images}),
        ),
        notes=(*source.notes, *notes),
        public_images=public_images,
    )
    wrong = [k for k in noisy if k not in is_right]
    return data, _truth(config, source, data, true[order], wrong)


def _subset(labels: Labels, n: int | None, setting: str, random: KeyedRandom, groups: Names | None = None) -> Index:
    """Return sorted positions of ``n`` samples that keep the shares of the classes; of all if n is None."""
    if n is None or n == len(labels):
        return np.arange(len(labels))
    counts = np.bincount(labels).tolist()
    n_present = sum(count > 0 for count in counts)
    if not n_present <= n <= len(labels):
        raise ConfigError(
            f"data.{setting} = {n} must be from {n_present} (one per class) to {len(labels)} (all there are)"
        )
    return draw_by_class(labels, quota_by_class(counts, n), random.derive(setting), groups)


def _deal(
    config: DataConfig, labels: Labels, owners: Names | None, source: Source, seed: int, random: KeyedRandom
) -> tuple[tuple[str, ...], list[Index]]:
    """Return client names and the positions each one owns."""
    kind = config.partition
    if kind == "auto":
        kind = "dirichlet" if owners is None else "by_column"
    n, stream = config.n_clients, random.derive("partition", kind)
    if kind == "by_column":
        if owners is None or source.clients is None:
            raise ConfigError(f"data.partition = by_column, but {source.name} does not say which client owns what")
        lost = np.setdiff1d(source.clients, owners)
        if len(lost):
            raise ConfigError(f"data.n_train = {config.n_train} leaves client {str(lost[0])!r} no sample: raise it")
        return partition.by_column(owners)
    if kind == "dirichlet":
        parts = partition.dirichlet(labels, n, config.alpha, config.min_samples, stream)
    elif kind == "authors":
        parts = partition.authors_dirichlet(labels, n, config.alpha, seed)
    elif kind == "iid":
        parts = partition.iid(labels, n, stream)
    else:
        parts = partition.shards(labels, n, config.shards_per_client, stream)
    empty = [k for k, part in enumerate(parts) if len(part) == 0]
    if empty:
        raise DataError(
            f"client {empty[0]} got no sample from data.partition = {kind} ({len(empty)} of {n} clients got none): "
            "raise data.alpha, lower data.n_clients, or use data.partition = dirichlet, which fills them up"
        )
    return tuple(str(k) for k in range(n)), parts


def _given_labels(
    config: DataConfig,
    source: Source,
    kept: Index,
    parts: list[Index],
    names: tuple[str, ...],
    noisy: tuple[int, ...],
    seed: int,
    random: KeyedRandom,
) -> Labels:
    """Return the labels of all kept samples after noise on the noisy clients."""
    true, n_classes, rate = source.train_labels[kept], source.n_classes, config.noise_rate
    if config.noise_draw == "authors":
        return noise.authors_symmetric(true, parts, noisy, n_classes, rate, seed)
    targets = noise.pair_targets(n_classes)
    if config.noise == "asymmetric":
        if source.confused_with is None:
            raise ConfigError(
                f"data.noise = asymmetric is defined for cifar10 and cifar100, not for {source.name}: "
                "use pair, or matrix with data.transition"
            )
        targets = source.confused_with
    transition = np.array(config.transition or (), np.float64)
    if config.noise == "matrix" and len(transition) != n_classes:
        raise ConfigError(f"data.transition has {len(transition)} rows, but {source.name} has {n_classes} classes")
    from_file = np.empty(0, np.int64)
    if config.labels_file is not None:
        from_file = read_labels_file(config.labels_file, len(source.train_labels), source.class_names)[kept]
    given = true.copy()
    for k in noisy:
        mine, stream = parts[k], random.derive("noise", names[k])
        if config.noise == "symmetric":
            given[mine] = noise.symmetric(true[mine], n_classes, rate, stream)
        elif config.noise == "matrix":
            given[mine] = noise.by_transition(true[mine], transition, stream)
        elif config.noise == "file":
            given[mine] = from_file[mine]
        else:
            given[mine] = noise.flip_to(true[mine], targets, rate, stream)
    return given


def _truth(config: DataConfig, source: Source, data: FederatedData, true: Labels, noisy: list[int]) -> GroundTruth:
    """Return what is known of the federation; ``true`` is in its order, ``noisy`` are client numbers."""
    transition = np.zeros((data.n_classes, data.n_classes), np.int64)
    if not source.is_benchmark and not config.adds_noise:
        return GroundTruth(None, (), (), is_known=False, transition=transition)
    is_noisy = set(noisy)
    for k in noisy:
        rows = data.rows(data.clients[k])
        transition += noise.realised_transition(true[rows], data.given_labels[rows], data.n_classes)
    return GroundTruth(
        true_labels=true,
        clean_clients=tuple(name for k, name in enumerate(data.clients) if k not in is_noisy),
        noisy_clients=tuple(data.clients[k] for k in noisy),
        is_known=True,
        transition=transition,
    )
