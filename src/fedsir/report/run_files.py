"""What a run's folder holds, read for its page: all of a finished run, and what there is of an unfinished one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsir.errors import RunFolderError
from fedsir.runs.config import flat
from fedsir.runs.file_forms import DataFile, FileForm, IdentificationFile, ProvenanceFile
from fedsir.runs.run_folder import RunFolder, reading
from fedsir.stages.split import ClientSplit


@dataclass(frozen=True)
class Relabelled:
    """What relabelling did to one client's labels; what needs the truth is None where nobody knows it."""

    n: int
    n_changed: int
    n_wrong_before: int | None
    n_wrong_after: int | None
    n_repaired: int | None
    n_harmed: int | None

    @property
    def before(self) -> float | None:
        """Share of wrong labels as given."""
        return None if self.n_wrong_before is None or not self.n else self.n_wrong_before / self.n

    @property
    def after(self) -> float | None:
        """Share of wrong labels at the end."""
        return None if self.n_wrong_after is None or not self.n else self.n_wrong_after / self.n


@dataclass(frozen=True, eq=False)  # arrays have no single equality
class Labels:
    """labels.npz: given and corrected label (n,) and client (n,) of every sample, by number, and what they are called.

    index : (n,) position of each sample in the training set
    samples : (n,) what the user knows each sample by, as text
    """

    given: NDArray[np.int64]
    corrected: NDArray[np.int64]
    client: NDArray[np.int64]
    index: NDArray[np.int64]
    samples: NDArray[np.str_]
    client_names: tuple[str, ...]
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class Federation:
    """data.json: who holds what.

    really_noisy, noise_by_client : None where nobody knows
    """

    name: str
    class_names: tuple[str, ...]
    sizes: dict[str, int]
    n_test: int
    really_noisy: frozenset[str] | None
    noise_by_client: dict[str, float] | None
    notes: tuple[str, ...]
    sha256: str


@dataclass(frozen=True)
class RunFiles:
    """A run as its folder tells it; None or empty where the folder does not.

    settings : dotted key → value
    config_lines : config.toml
    lines : metrics.jsonl, one mapping per round
    shares : round → client → weight in the average
    """

    folder: Path
    settings: dict[str, Any]
    config_lines: tuple[str, ...]
    result: dict[str, Any] | None
    lines: list[dict[str, Any]]
    shares: dict[int, dict[str, float]]
    federation: Federation | None
    split: ClientSplit | None
    relabelled: dict[str, Relabelled]
    labels: Labels | None
    provenance: dict[str, Any] | None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.resolve().name

    @property
    def method(self) -> str:
        """The method's name as the settings have it."""
        return str(self.settings["method.name"])

    @property
    def rounds(self) -> int:
        """How many rounds were asked for."""
        return int(self.settings["rounds"])

    @property
    def rounds_done(self) -> int:
        """The last round that is on disk; -1 if there is none."""
        return max((line["round"] for line in self.lines), default=-1)

    @property
    def clients(self) -> tuple[str, ...]:
        """Everybody that the folder names."""
        if self.federation is not None:
            return tuple(self.federation.sizes)
        if self.split is not None:
            return (*self.split.noisy, *self.split.not_assessed, *self.split.clean)
        verdicts = self.result or {}
        return (
            *(verdicts.get("noisy_clients") or ()),
            *(verdicts.get("not_assessed") or ()),
            *(verdicts.get("clean_clients") or ()),
        )

    def verdicts(self) -> dict[str, str]:
        """Return client → clean, noisy or not assessed; empty where the method does not say."""
        source: Mapping[str, Any] = self.result or {}
        if self.split is not None:
            clean, noisy, unknown = self.split.clean, self.split.noisy, self.split.not_assessed
        elif source.get("noisy_clients") is not None:
            clean, noisy, unknown = source["clean_clients"], source["noisy_clients"], source.get("not_assessed") or {}
        else:
            return {}
        words = dict.fromkeys(clean, "clean") | dict.fromkeys(noisy, "noisy")
        return words | dict.fromkeys(unknown, "not assessed")

    def reasons(self) -> dict[str, str]:
        """Return client → why it could not be assessed."""
        if self.split is not None:
            return self.split.not_assessed
        return (self.result or {}).get("not_assessed") or {}


class RelabellingFile(FileForm):
    """relabelling.json."""

    by_client: dict[str, dict[str, int | float | None]]


def read_run(folder: Path) -> RunFiles:
    """Return what is in a run's folder; a folder of anything else is an error that names it."""
    files = RunFolder(folder)
    try:
        is_run = (folder / "config.toml").is_file()
    except (OSError, ValueError) as problem:
        raise RunFolderError(f"{folder} cannot be read: {problem}.") from None
    if not is_run:
        raise RunFolderError(f"{folder} is not a run folder: there is no config.toml in it.")
    settings = dict(flat(files.stored_config()))
    with reading(folder / "config.toml"):
        if not {"method.name", "data.dataset", "seed", "rounds"} <= settings.keys():
            raise ValueError("every run has these settings")
        config_lines = tuple((folder / "config.toml").read_text(encoding="utf-8").splitlines())
    result, lines = files.result(), files.metrics()
    with reading(folder / "metrics.jsonl", may_be_missing=True):
        shares = {
            int(line["round"]): {str(k): float(v) for k, v in line["shares"].items()}
            for line in lines
            if line.get("shares")
        }
    return RunFiles(
        folder=folder,
        settings=settings,
        config_lines=config_lines,
        result=result,
        lines=lines,
        shares=shares,
        federation=_federation(files),
        split=_split(files),
        relabelled=_relabelled(files) if result is not None else {},
        labels=_labels(folder) if result is not None else None,
        provenance=files.read_json("provenance.json", ProvenanceFile),
    )


def _federation(files: RunFolder) -> Federation | None:
    stored = files.read_json("data.json", DataFile)
    if stored is None:
        return None
    with reading(files.path / "data.json"):
        is_known = stored["truth_is_known"]
        rates = stored["noise_by_client"]
        return Federation(
            name=str(stored["name"]),
            class_names=tuple(stored["class_names"]),
            sizes={str(client): int(n) for client, n in stored["client_sizes"].items()},
            n_test=int(stored["n_test"]),
            really_noisy=frozenset(stored["noisy_clients"]) if is_known else None,
            noise_by_client={str(k): float(v) for k, v in rates.items()} if is_known and rates else None,
            notes=tuple(map(str, stored.get("notes") or ())),
            sha256=stored["sha256"],
        )


def _split(files: RunFolder) -> ClientSplit | None:
    stored = files.read_json("identification.json", IdentificationFile)
    with reading(files.path / "identification.json"):
        return None if stored is None else ClientSplit.from_tree(stored["split"])


def _relabelled(files: RunFolder) -> dict[str, Relabelled]:
    stored = files.read_json("relabelling.json", RelabellingFile)
    with reading(files.path / "relabelling.json"):
        return {
            client: Relabelled(*(_count(row[name]) for name in Relabelled.__dataclass_fields__))  # type: ignore[arg-type]
            for client, row in ({} if stored is None else stored["by_client"]).items()
        }


def _count(value: float | None) -> int | None:
    return None if value is None else int(value)


def _labels(folder: Path) -> Labels | None:
    path = folder / "labels.npz"
    if not path.exists():
        return None  # committed runs have none
    with reading(path), np.load(path, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
        client_names, class_names = (tuple(map(str, arrays[name])) for name in ("client_names", "class_names"))
        numbers = [arrays[name].astype(np.int64) for name in ("given", "corrected", "client", "source_index")]
        limits = (len(class_names), len(class_names), len(client_names), np.iinfo(np.int64).max)
        n = len(numbers[0])
        if any(
            a.shape != (n,) or (n and not (a.min() >= 0 and a.max() < m)) for a, m in zip(numbers, limits, strict=True)
        ):
            raise ValueError("labels, clients or samples are out of range")
        samples = arrays.get("sample", arrays["source_index"]).astype(str)
        given, corrected, client, index = numbers
        return Labels(given, corrected, client, index, samples, client_names, class_names)


def is_run_folder(folder: Path) -> bool:
    """Whether a folder holds a run, finished or not."""
    return (folder / "config.toml").is_file()
