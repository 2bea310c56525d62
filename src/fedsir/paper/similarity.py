"""The computation behind the paper's Figure 2: one client's class similarities with more and more wrong labels."""

from __future__ import annotations

import io
import tomllib
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedsir.errors import ConfigError, DataError
from fedsir.runs.config import parse_config
from fedsir.stages.split import OffDiagonal

if TYPE_CHECKING:
    from fedsir.data.arrays import Counts
    from fedsir.data.federation import FederatedData
    from fedsir.models.initial import InitialModel
    from fedsir.runs.config import RunConfig

PAPER_RATES = (0.0, 0.4, 0.8)


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Similarity:
    """One client's class similarities, Eq. (2), at several noise rates.

    Attributes
    ----------
    noise_rates : (n_rates,) share of wrong labels asked for, in [0, 1]
    matrices : (n_rates, C, C) |cos| between class directions; NaN where the client has too few samples of a class
    off_diagonal : (n_rates,) mean, Eq. (3), and energy, Eq. (4), of each matrix
    class_names : (C,)
    client : the client's name
    n_samples : how many samples it has
    settings : of the run, as TOML; other settings have other matrices
    """

    noise_rates: tuple[float, ...]
    matrices: NDArray[np.float64]
    off_diagonal: tuple[OffDiagonal, ...]
    class_names: tuple[str, ...]
    client: str
    n_samples: int
    settings: str

    def is_of(self, config: RunConfig) -> bool:
        """Whether these settings give these matrices; settings stored before one was introduced had its default."""
        try:
            stored = tomllib.loads(self.settings)
            # The method first: another one may be code in a file, which nobody named now.
            return stored["method"]["name"] == config.method.name and parse_config(stored).sha256 == config.sha256
        except (tomllib.TOMLDecodeError, LookupError, TypeError, ConfigError):
            return False

    def to_bytes(self) -> bytes:
        """Return the content of an npz file."""
        arrays: dict[str, Any] = {**vars(self), "off_diagonal": [list(vars(s).values()) for s in self.off_diagonal]}
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        return buffer.getvalue()

    @classmethod
    def load(cls, path: Path) -> Similarity:
        """Read the file that `to_bytes` fills."""
        try:
            with np.load(path, allow_pickle=False) as archive:
                statistics = archive["off_diagonal"].tolist()
                found = cls(
                    noise_rates=tuple(archive["noise_rates"].tolist()),
                    matrices=archive["matrices"],
                    off_diagonal=tuple(OffDiagonal(mean, energy, int(n)) for mean, energy, n in statistics),
                    class_names=tuple(archive["class_names"].tolist()),
                    client=str(archive["client"]),
                    n_samples=int(archive["n_samples"]),
                    settings=str(archive["settings"]),
                )
        except (OSError, ValueError, TypeError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
            raise DataError(f"{path} does not hold class similarities: remove it to compute them again.") from None
        if found.matrices.shape != (len(found.noise_rates), *[len(found.class_names)] * 2):
            raise DataError(f"{path} is damaged: remove it to compute the class similarities again.")
        return found


def similarity_panels(
    config: RunConfig,
    noise_rates: Sequence[float] = PAPER_RATES,
    *,
    data_dir: Path | None = None,
    device: str = "cpu",
    download: bool = False,
) -> Similarity:
    """Let one client go through its part of Stage I once per noise rate, from the same initial model each time.

    The client is `best_spread_client`'s choice. It has the same images, initial model and random draws at every rate:
    only labels differ. Noise is symmetric and keyed, whatever the settings say, so that the labels that are wrong at
    one rate are also wrong at every higher one. (The authors' draw, `data.noise_draw = "authors"`, goes on from noisy
    client to noisy client; there is one here.)

    Parameters
    ----------
    config : settings of a run whose method has Stage I (fedsir, pruning); its own noise is not read
    """
    from fedsir.data.dealing import build_federation, load_images
    from fedsir.data.directory import data_directory
    from fedsir.engines.device_settings import prepared
    from fedsir.models.initial import initial_model
    from fedsir.runs.devices import check_device

    if wrong := [rate for rate in noise_rates if not 0 <= rate <= 1]:
        raise ConfigError(f"A noise rate is a share in [0, 1], not {wrong[0]:g}.")
    check_device(device)
    min_samples = _stage_one_settings(config).min_class_samples
    where = data_directory(data_dir)
    source, public = load_images(config.data, seed=config.seed, data_dir=where, download=download)

    def dealt(client: str | None, rate: float) -> FederatedData:
        noise = {
            "noise": "symmetric",
            "noise_draw": "keyed",
            "noise_rate": rate,
            "transition": None,
            "labels_file": None,
            "noisy_clients": "none" if client is None else (client,),
        }
        return build_federation(config.data.model_copy(update=noise), source, seed=config.seed, public=public)

    clean = dealt(None, 0.0)
    client = clean.clients[best_spread_client(clean.counts(), min_samples)]
    with prepared(device):
        initial = initial_model(config.model, clean, seed=config.seed, data_dir=where, download=download)
    seen = [stage_one(config, dealt(client, rate), client, initial, device) for rate in noise_rates]
    return Similarity(
        noise_rates=tuple(noise_rates),
        matrices=np.stack([matrix for matrix, _ in seen]),
        off_diagonal=tuple(statistics for _, statistics in seen),
        class_names=clean.class_names,
        client=client,
        n_samples=clean.size_by_client[client],
        settings=config.to_toml(),
    )


def best_spread_client(counts: Counts, min_samples: int) -> int:
    """Return the client with the most usable classes; at a tie the one whose rarest usable class is largest.

    Parameters
    ----------
    counts : (n_clients, n_classes) samples of each class
    min_samples : a class is usable from this many samples on
    """

    def spread(client: int) -> tuple[int, int]:
        usable = counts[client][counts[client] >= min_samples]
        return len(usable), int(usable.min(initial=counts.max()))

    return max(range(len(counts)), key=spread)


def _stage_one_settings(config: RunConfig) -> Any:
    from fedsir.methods.registry import method_class
    from fedsir.methods.spectral_identification import SpectralIdentification

    if not issubclass(method_class(config.method.name), SpectralIdentification):
        raise ConfigError(f"{config.method.name} has no Stage I, which the class similarities are from: use fedsir.")
    return config.method.identify  # type: ignore[attr-defined]


def stage_one(
    config: RunConfig, data: FederatedData, client: str, model: InitialModel, device: str
) -> tuple[NDArray[np.float64], OffDiagonal]:
    """Return the client's class similarities, (C, C), and what it would send to a server."""
    from fedsir.engines.base import Call
    from fedsir.engines.client_host import ClientHost, HostSpec
    from fedsir.engines.client_store import ClientStore
    from fedsir.engines.device_settings import prepared
    from fedsir.engines.wire import encode
    from fedsir.methods.registry import method_class
    from fedsir.stages.identify import off_diagonal_stats

    method: Any = method_class(config.method.name)(config.method)
    nothing = encode({})
    host = ClientHost(HostSpec(method, model.module, config.seed, device, ClientStore.of(data)))
    with prepared(device):
        client_half = host.client(Call(client, "identify", round=0, own=nothing), nothing)
        similarity = method.class_similarity(client_half, model.weights)
    return similarity, off_diagonal_stats(similarity)
