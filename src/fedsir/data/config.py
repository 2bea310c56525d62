"""Every setting that decides which samples a client holds and which of its labels are wrong."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from fedsir.data.noise_rate import NoiseRate, noise_rate_text, parse_noise_rate
from fedsir.data.source import DATASETS, SMALLEST_SIDE

LARGEST_SIDE = 4096  # pixels that image_size may ask for
MOST = 10**9  # of anything that is counted

Partition = Literal["auto", "dirichlet", "authors", "iid", "shards", "by_column"]
Noise = Literal["symmetric", "pair", "asymmetric", "instance", "matrix", "file", "none"]
NoisyClients = Literal["cover", "all", "none"] | int | tuple[str, ...]


def _parse_noisy_clients(value: object) -> NoisyClients:
    """Return 'cover', 'all', 'none', a count, or names; a command line gives all of them as one string."""
    if value in ("cover", "all", "none"):
        return value
    if isinstance(value, str):
        text = value.strip()
        if text.removeprefix("-").isdecimal():
            value = int(text[:20])  # of any longer number this is already far more than there can be clients
        else:  # "3,4", "berlin", and "3," for the one client called 3
            value = [name.strip() for name in text.split(",") if name.strip()]
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"a number of noisy clients cannot be negative ({value})")
        return value
    entries = list(value) if isinstance(value, list | tuple) else []
    if not entries or not all(type(name) in (str, int) for name in entries):
        raise ValueError("give 'cover', 'all', 'none', a number of clients, or client names such as '3,4'")
    names = tuple(str(name) for name in entries)
    if len(set(names)) < len(names):
        raise ValueError(f"a client is named twice in {', '.join(names)}")
    return names


def _parse_image_size(value: object) -> object:
    """Return a side, (height, width) or None; anything else is refused in one line."""
    sides = value if isinstance(value, list | tuple) and len(value) == 2 else [value]
    if value is not None and not all(type(side) is int and SMALLEST_SIDE <= side <= LARGEST_SIDE for side in sides):
        raise ValueError(f"give a side or [height, width], in whole pixels from {SMALLEST_SIDE} to {LARGEST_SIDE}")
    return value


class DataConfig(BaseModel):
    """The samples of a federation: their source, their owners, their given labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str = Field(
        "digits",
        min_length=1,
        description="Name of a known data set (digits, cifar10, cifar100), or the path of a folder "
        "client/class/image or of an npz file.",
    )
    image_size: Annotated[int | tuple[int, int] | None, BeforeValidator(_parse_image_size)] = Field(
        None,
        description="Side in pixels, or [height, width], of own images: each is scaled until it covers that and "
        "cropped to its centre; if not set, all must have one size and keep it.",
    )
    n_clients: int = Field(
        10,
        ge=1,
        le=MOST,
        description="Number of clients to deal the samples to; unused if the data name their clients.",
    )
    partition: Partition = Field(
        "auto",
        description="How samples are dealt: dirichlet (class shares drawn at random), authors (exact replay "
        "of the published split), iid, shards (few classes each), by_column (the data's own clients). "
        "auto is by_column if the data name their clients, else dirichlet.",
    )
    alpha: float = Field(
        2.0,
        gt=0,
        allow_inf_nan=False,
        description="Dirichlet concentration for dirichlet and authors: small makes clients differ much.",
    )
    min_samples: int = Field(
        10, ge=1, le=MOST, description="Fewest samples a client gets from the dirichlet partition."
    )
    shards_per_client: int = Field(
        2, ge=1, le=MOST, description="Label-sorted pieces each client gets from the shards partition."
    )
    n_train: int | None = Field(
        None, ge=1, le=MOST, description="Use only this many training samples, drawn class by class; all if not set."
    )
    n_test: int | None = Field(
        None, ge=1, le=MOST, description="Use only this many test samples, drawn class by class; all if not set."
    )
    noise: Noise = Field(
        "symmetric",
        description="How labels of noisy clients go wrong: symmetric (any other class), pair (the next "
        "class), asymmetric (look-alikes of digits and CIFAR), instance (the image decides), matrix (data.transition), "
        "file (data.labels_file), none.",
    )
    noise_draw: Literal["keyed", "authors"] = Field(
        "keyed",
        description="keyed: every client draws from its own stream; authors: exact replay of the published "
        "draw, symmetric noise of one rate only.",
    )
    noise_rate: Annotated[NoiseRate, BeforeValidator(parse_noise_rate)] = Field(
        0.0,
        description="Share of each class's samples on a noisy client that get a wrong label, in [0, 1], or [lowest, "
        "highest] to draw one for every noisy client; for symmetric, pair, asymmetric and instance noise.",
    )
    transition: tuple[tuple[float, ...], ...] | None = Field(
        None,
        description="For noise = matrix: row c holds the probability of each given label when c is true.",
    )
    labels_file: str | None = Field(
        None,
        description="For noise = file: npz, npy or csv with the given label of every training sample, in the "
        "order of the data set; noisy clients take theirs from it.",
    )
    noisy_clients: Annotated[NoisyClients, BeforeValidator(_parse_noisy_clients)] = Field(
        "cover",
        description="Who is noisy: cover (all but the few clients that together hold every class), all, "
        "none, a number (drawn at random), or client names such as '3,4' ('3,' for the one client called 3).",
    )
    cover_min_samples: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="Samples of a class a client needs to count for noisy_clients = cover; if not set, 9 % "
        "of the mean class size (450 for CIFAR-10, 45 for CIFAR-100).",
    )
    public: str | None = Field(
        None,
        min_length=1,
        description="Unlabelled images that everybody has, for methods that need some (rhfl, fedned): a data set or "
        "path as for data.dataset, an npz file with images alone, or held-out (at most an eighth of the training "
        "images, which no client then has). For such a method, if not set: cifar100 for cifar10 and the reverse, "
        "held-out for digits.",
    )
    public_size: int = Field(
        5000, ge=1, le=MOST, description="How many of them, drawn at random; all if there are fewer."
    )

    @field_validator("transition")
    @classmethod
    def _is_row_stochastic(cls, rows: tuple[tuple[float, ...], ...] | None) -> tuple[tuple[float, ...], ...] | None:
        if rows is None:
            return None
        for c, row in enumerate(rows):
            if len(row) != len(rows):
                raise ValueError(f"the matrix must be square: {len(rows)} rows, but row {c} has {len(row)} entries")
            if not all(math.isfinite(p) and 0 <= p <= 1 for p in row):
                raise ValueError(f"row {c} has an entry that is not a probability in [0, 1]")
            if abs(sum(row) - 1) > 1e-6:
                raise ValueError(f"row {c} sums to {sum(row):g}, not to 1")
        return rows

    @model_validator(mode="after")
    def _settings_agree(self) -> DataConfig:
        if self.public == self.dataset:
            raise ValueError(f"public = {self.public!r} is the data set itself, test images and all: use held-out")
        if self.image_size is not None and self.dataset in DATASETS:
            raise ValueError(f"image_size is for own images; {self.dataset} has one size already: drop image_size")
        if self.noise == "matrix" and self.transition is None:
            raise ValueError("noise = 'matrix' needs data.transition, one row of probabilities per class")
        if self.noise != "matrix" and self.transition is not None:
            raise ValueError(f"transition is read only with noise = 'matrix', not {self.noise!r}: drop one")
        if self.noise == "file" and self.labels_file is None:
            raise ValueError("noise = 'file' needs data.labels_file, the path of an npz, npy or csv file")
        if self.noise != "file" and self.labels_file is not None:
            raise ValueError(f"labels_file is read only with noise = 'file', not {self.noise!r}: drop one")
        if self.noise in ("matrix", "file", "none") and self.noise_rate != 0:
            raise ValueError(
                f"noise_rate = {noise_rate_text(self.noise_rate)} is not read with noise = {self.noise!r}: drop noise, "
                "or set the rate to 0 (--noise-rate 0)"
            )
        if self.noise_draw == "authors" and self.noise not in ("symmetric", "none"):
            raise ValueError(
                f"noise_draw = 'authors' replays symmetric noise only, not {self.noise!r}: set it to keyed"
            )
        if self.noise_draw == "authors" and isinstance(self.noise_rate, tuple):
            raise ValueError(
                "noise_draw = 'authors' replays one noise rate for all noisy clients, not "
                f"{noise_rate_text(self.noise_rate)}: set it to keyed (--set data.noise_draw=keyed)"
            )
        return self

    @property
    def adds_noise(self) -> bool:
        """Whether any given label may differ from the true one."""
        if self.noise == "none" or self.noisy_clients in ("none", 0):
            return False
        return self.noise in ("matrix", "file") or self.noise_rate != 0
