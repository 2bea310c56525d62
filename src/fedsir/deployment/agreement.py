"""What a server and its sites agree on before anything trains: classes by name, the form of images, their scale."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir import __version__
from fedsir.data.federation import FederatedData, GroundTruth
from fedsir.data.naming import natural_order
from fedsir.data.preprocessing import Preprocessing
from fedsir.engines.flower.roster import GridError, Present
from fedsir.methods.replies import ClientId

if TYPE_CHECKING:
    from fedsir.data.arrays import Images

SMALLEST_STD = 1e-3
NOTE_TYPES: dict[str, type] = {
    "version": str,
    "class_names": list,
    "channels": int,
    "image_size": list,
    "n_train": int,
    "n_held_out": int,
    "n_pixels": int,
    "pixel_sum": list,
    "pixel_square_sum": list,
    "data_sha256": str,
}


@dataclass(frozen=True)
class Agreement:
    """What holds for all sites of a run; it stays when one joins late or comes back.

    Attributes
    ----------
    clients : everybody, in the order of the federation
    class_names : all classes that any site had when the run began
    classes_by_client : which of them each site has, of those that were there
    samples_by_client : how many samples each of these trains on
    """

    clients: tuple[ClientId, ...]
    class_names: tuple[str, ...]
    channels: int
    image_size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    classes_by_client: dict[ClientId, list[str]]
    samples_by_client: dict[ClientId, int]

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are scaled and augmented: an eighth of padding, no mirror, as for own data."""
        return Preprocessing(self.mean, self.std, flip=False, crop_padding=self.image_size[0] // 8)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> Agreement:
        """Return what `to_json` wrote."""
        lists = {key: tuple(value) for key, value in tree.items() if isinstance(value, list)}
        return cls(**{**tree, **lists})

    def fault(self, found: Present) -> str | None:
        """Return why a site cannot take part, None if it can."""
        if (fault := fault_of_note(found.note)) is not None:
            return fault
        form = (found.note["channels"], *found.note["image_size"])
        if form != (self.channels, *self.image_size):
            return f"its images are {_shape(form)}, those of the others {_shape((self.channels, *self.image_size))}"
        if strange := [name for name in found.note["class_names"] if name not in self.class_names]:
            return f"it has class {strange[0]!r}, which the federation does not ({', '.join(self.class_names)})"
        if found.client not in self.clients:
            return "it was not there when the run began, and `sites` does not name it"
        return None

    def data(self, test: tuple[Any, Any] | None = None, public: Images | None = None) -> FederatedData:
        """Return the federation as the server knows it: names, and not a single sample of a site's.

        public : (p, channels, height, width) unlabelled images that everybody has
        """
        n_classes = len(self.class_names)
        images = np.zeros((0, self.channels, *self.image_size), np.uint8) if test is None else test[0]
        labels = np.zeros(0, np.int64) if test is None else test[1]
        none = np.zeros(0, np.int64)
        return RemoteData(
            clients=self.clients,
            offsets=(0,) * (len(self.clients) + 1),
            images=images,
            image_rows=none,
            given_labels=none.copy(),
            source_index=none.copy(),
            test_rows=np.arange(len(labels)),
            test_labels=labels,
            class_names=self.class_names,
            preprocessing=self.preprocessing,
            name="sites",
            images_sha256="",
            sha256="",
            notes=(),
            public_images=public,
            truth=GroundTruth(None, (), (), is_known=False, transition=np.zeros((n_classes, n_classes), np.int64)),
        ).knowing(self)


class RemoteData(FederatedData):
    """A federation whose samples are elsewhere."""

    def knowing(self, agreement: Agreement) -> RemoteData:
        """Return itself with what the sites have told."""
        object.__setattr__(self, "_agreement", agreement)
        return self

    def counts(self) -> Any:
        """Return (n_clients, n_classes) counts as far as anybody tells: a site's samples, even over its classes."""
        told: Agreement = self._agreement  # type: ignore[attr-defined]
        counts = np.zeros((len(self.clients), len(self.class_names)), np.int64)
        for k, client in enumerate(self.clients):
            has = told.classes_by_client.get(client, list(self.class_names))
            for name in has:
                counts[k, self.class_names.index(name)] = max(1, told.samples_by_client.get(client, 100) // len(has))
        return counts


def agree(present: Mapping[ClientId, Present], named: Iterable[ClientId] = ()) -> Agreement:
    """Return what sites can agree on; those that do not fit the others are an error that names the first."""
    faults = {k: fault for k, found in present.items() if (fault := fault_of_note(found.note)) is not None}
    if faults:
        raise GridError(f"Site {min(faults)!r} cannot take part: {faults[min(faults)]}.")
    clients = natural_order({*present, *named})
    first = present[next(client for client in clients if client in present)]
    notes = [present[client].note for client in clients if client in present]
    class_names = natural_order({name for note in notes for name in note["class_names"]})
    if len(class_names) < 2:
        raise GridError("All sites together have one class; at least two are needed.")
    n_pixels = sum(note["n_pixels"] for note in notes)
    sums, squares = (
        [sum(channel) for channel in zip(*(note[key] for note in notes), strict=False)]  # whole numbers: any order
        for key in ("pixel_sum", "pixel_square_sum")
    )
    mean = [total / n_pixels / 255 for total in sums]
    variance = [square / n_pixels / 255**2 - m * m for square, m in zip(squares, mean, strict=True)]
    agreement = Agreement(
        clients=clients,
        class_names=class_names,
        channels=first.note["channels"],
        image_size=(first.note["image_size"][0], first.note["image_size"][1]),
        mean=tuple(mean),
        std=tuple(max(math.sqrt(max(v, 0.0)), SMALLEST_STD) for v in variance),
        classes_by_client={k: list(present[k].note["class_names"]) for k in clients if k in present},
        samples_by_client={k: present[k].note["n_train"] for k in clients if k in present},
    )
    for client in clients:
        if client in present and (fault := agreement.fault(present[client])) is not None:
            raise GridError(f"Site {client!r} cannot take part: {fault}.")
    return agreement


def fault_of_note(note: Mapping[str, Any]) -> str | None:
    """Return what is wrong with what a site says of itself, whatever the others say."""
    if (version := note.get("version")) != __version__:
        return f"it has fedsir {version}, the server has {__version__}: install the same version"
    for key, kind in NOTE_TYPES.items():
        if type(note.get(key)) is not kind:
            return f"what it says of itself has no {key}"
    return None


def _shape(form: tuple[int, ...]) -> str:
    return f"{form[1]}×{form[2]} pixels in {'colour' if form[0] == 3 else 'grey'}"
