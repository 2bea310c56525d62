"""Facts about the published CIFAR archives: names, checksums, classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

# What the authors of the paper normalise with, as their weights come from ImageNet.
IMAGENET_STATISTICS = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HOME = "https://www.cs.toronto.edu/~kriz"
N_TRAIN, N_IMAGES = 50_000, 60_000  # of both; the test images come after those for training


class Checksum(NamedTuple):
    """The digest of a published file; its size in bytes where known."""

    algorithm: Literal["sha256", "md5"]
    digest: str
    size: int | None = None


@dataclass(frozen=True)
class Layout:
    """One way in which an archive is published."""

    kind: Literal["binary", "python"]
    folder: str
    train: Mapping[str, Checksum]  # by file name, in the order of the samples
    test: Mapping[str, Checksum]


@dataclass(frozen=True)
class Cifar:
    """One of the two data sets; ``layouts`` in order of preference, ``archive`` holds the first."""

    layouts: tuple[Layout, ...]
    archive: str
    archive_md5: str
    label_bytes: int  # label bytes before the pixels of a binary record; the last of them is the class
    label_key: str  # under which the python layout keeps the class
    class_names: tuple[str, ...]
    confused_with: tuple[int, ...]


_CIFAR10_NAMES = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100_NAMES = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup
dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower
leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid
otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine possum rabbit raccoon ray
road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
CIFAR10_CLASSES = tuple(_CIFAR10_NAMES.split())
CIFAR100_CLASSES = tuple(_CIFAR100_NAMES.split())

# The superclass (0 … 19) of each of the 100 classes.
CIFAR100_SUPERCLASS = (
    *(4, 1, 14, 8, 0, 6, 7, 7, 18, 3, 3, 14, 9, 18, 7, 11, 3, 9, 7, 11, 6, 11, 5, 10, 7),
    *(6, 13, 15, 3, 15, 0, 11, 1, 10, 12, 14, 16, 9, 11, 5, 5, 19, 8, 8, 15, 13, 14, 17, 18, 10),
    *(16, 4, 17, 4, 2, 0, 17, 4, 18, 17, 10, 3, 2, 12, 12, 16, 12, 1, 9, 19, 2, 10, 0, 1, 16),
    *(12, 9, 13, 15, 13, 16, 19, 2, 4, 6, 19, 5, 5, 8, 19, 18, 1, 2, 15, 6, 0, 17, 8, 14, 13),
)


def _look_alikes() -> tuple[int, ...]:
    """Return CIFAR-10's usual map: truck → automobile, bird → airplane, deer → horse, cat ↔ dog."""
    pairs = {"truck": "automobile", "bird": "airplane", "deer": "horse", "cat": "dog", "dog": "cat"}
    return tuple(CIFAR10_CLASSES.index(pairs.get(name, name)) for name in CIFAR10_CLASSES)


def _next_in_superclass() -> tuple[int, ...]:
    """Return, for each of the 100 classes, the next one of its superclass; the last turns into the first."""
    following = []
    for c, superclass in enumerate(CIFAR100_SUPERCLASS):
        siblings = [other for other, of in enumerate(CIFAR100_SUPERCLASS) if of == superclass]
        following.append(siblings[(siblings.index(c) + 1) % len(siblings)])
    return tuple(following)


def _sha256(size: int, **digests: str) -> dict[str, Checksum]:
    return {f"{name}.bin": Checksum("sha256", digest, size) for name, digest in digests.items()}


def _md5(**digests: str) -> dict[str, Checksum]:
    return {name: Checksum("md5", digest) for name, digest in digests.items()}


CIFAR10 = Cifar(
    layouts=(
        Layout(
            "binary",
            "cifar-10-batches-bin",
            train=_sha256(
                10_000 * 3073,
                data_batch_1="cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
                data_batch_2="a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
                data_batch_3="bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
                data_batch_4="014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
                data_batch_5="755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
            ),
            test=_sha256(10_000 * 3073, test_batch="8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ),
        Layout(
            "python",
            "cifar-10-batches-py",
            train=_md5(
                data_batch_1="c99cafc152244af753f735de768cd75f",
                data_batch_2="d4bba439e000b95fd0a9bffe97cbabec",
                data_batch_3="54ebc095f3ab1f0389bbae665268c751",
                data_batch_4="634d18415352ddfa80567beed471001a",
                data_batch_5="482c414d41f54cd18b22e5b47cb7c3cb",
            ),
            test=_md5(test_batch="40351d587109b95175f43aff81a1287e"),
        ),
    ),
    archive="cifar-10-binary.tar.gz",
    archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
    label_bytes=1,
    label_key="labels",
    class_names=CIFAR10_CLASSES,
    confused_with=_look_alikes(),
)

CIFAR100 = Cifar(
    layouts=(
        Layout(
            "binary",
            "cifar-100-binary",
            train=_sha256(50_000 * 3074, train="f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            test=_sha256(10_000 * 3074, test="d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ),
        Layout(
            "python",
            "cifar-100-python",
            train=_md5(train="16019d7e3df5f24257cddd939b257f8d"),
            test=_md5(test="f0ef6b0ae62326f3e7ffdfab6717acfc"),
        ),
    ),
    archive="cifar-100-binary.tar.gz",
    archive_md5="03b5dce01913d631647c71ecec9e9cb8",
    label_bytes=2,
    label_key="fine_labels",
    class_names=CIFAR100_CLASSES,
    confused_with=_next_in_superclass(),
)

CIFAR = {"cifar10": CIFAR10, "cifar100": CIFAR100}
