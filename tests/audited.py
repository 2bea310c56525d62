"""Audits for tests: clients with a few wrong labels that `fedsir.audit` finds, with or without images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import fedsir
from fedsir.auditing.folder_writer import Origin, write_folder
from fedsir.randomness import KeyedRandom

CLIENTS = ("north", 'St. Mary\'s "east"', "<b>south</b>")
CLASSES = ("cat", "dog", "<img src=x onerror=alert(1)>")
COLOURS = ((200, 60, 40), (40, 120, 200), (60, 160, 60), (150, 80, 170), (210, 160, 30))


@dataclass(frozen=True)
class Samples:
    """What an audit is made of; one entry per sample."""

    features: np.ndarray
    true: list[str]
    given: list[str]
    clients: list[str]
    wrong: list[int]  # rows whose given label is not the true one

    def paths(self) -> list[str]:
        """Where each one's image lies: client/class/image."""
        rows = zip(self.clients, self.given, strict=True)
        return [f"{client}/{label}/image {row:03d}.png" for row, (client, label) in enumerate(rows)]


def samples(
    clients: Sequence[str] = CLIENTS, classes: Sequence[str] = CLASSES, n: int = 20, n_wrong: int = 6
) -> Samples:
    """Return n samples of each class for each client, of classes that lie far apart; two clients have wrong labels."""
    rng = KeyedRandom(0, ("audited",)).for_numpy()
    centres = 8 * np.eye(len(classes), max(8, len(classes)))
    true = np.tile(np.repeat(np.arange(len(classes)), n), len(clients))
    owner = np.repeat(np.arange(len(clients)), n * len(classes))
    given = true.copy()
    mine = n * len(classes)  # samples of a client
    wrong = np.concatenate([rng.permutation(mine)[:n_wrong], mine + rng.permutation(mine)[: n_wrong // 3]])
    given[wrong] = (true[wrong] + 1) % len(classes)
    return Samples(
        features=centres[true] + rng.normal(size=(len(true), centres.shape[1])),
        true=[classes[c] for c in true],
        given=[classes[c] for c in given],
        clients=[clients[k] for k in owner],
        wrong=sorted(wrong.tolist()),
    )


def audit_of_features(out: Path, some: Samples) -> Path:
    """Write the audit of features alone."""
    return fedsir.audit(some.features, some.given, some.clients).save(out)


def audit_of_folder(out: Path, data: Path, some: Samples) -> Path:
    """Write image files, each in its true class's colour, and their audit."""
    paths = some.paths()
    classes = sorted(set(some.true))
    for row, path in enumerate(paths):
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        picture(COLOURS[classes.index(some.true[row]) % len(COLOURS)], row).save(data / path)
    found = fedsir.audit(some.features, some.given, some.clients, paths=paths)
    return write_folder(found, out, Origin(data, "folder", "test"))


def audit_of_npz(out: Path, file: Path, some: Samples, ids: Sequence[str] | None = None) -> Path:
    """Write an npz file with images, of which row i is of brightness i, and their audit."""
    images = np.arange(len(some.given), dtype=np.uint8)[:, None, None].repeat(8, 1).repeat(9, 2)
    named = {} if ids is None else {"ids": np.array(ids)}
    np.savez_compressed(file, images=images, labels=np.array(some.given), clients=np.array(some.clients), **named)
    found = fedsir.audit(some.features, some.given, some.clients, ids=ids)
    return write_folder(found, out, Origin(file, "npz", "test"))


def picture(colour: tuple[int, int, int], row: int) -> Image.Image:
    """Return an image of odd size with a frame, in a colour."""
    image = Image.new("RGB", (40 + 7 * (row % 5), 40 + 11 * (row % 3)), (235, 235, 235))
    image.paste(colour, (8, 8, image.width - 8, image.height - 8))
    return image
