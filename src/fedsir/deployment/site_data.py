"""A site's own data: where they lie, what the server may know of them, and a copy that loads quickly.

Flower starts a process for each message, so the images of a folder are read once and kept as one file beside the site's
memory. Names, sizes and times of the original files tell whether the copy is still theirs.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tomllib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tomli_w

from fedsir import __version__
from fedsir.data.arrays import fingerprint
from fedsir.data.source import load_source
from fedsir.engines.flower.site_memory import file_name, write_whole
from fedsir.errors import DataError

if TYPE_CHECKING:
    from fedsir.data.arrays import Images, Labels

SITE_FILE = "site.toml"


@dataclass(frozen=True)
class SiteConfig:
    """What a site says of itself in site.toml.

    Attributes
    ----------
    client_id : its name in the federation
    data : its npz file, or folder client/class/image
    image_size : side in pixels that images are brought to; 0 keeps them as they are
    public : its copy of the unlabelled images that everybody has; empty for none
    """

    client_id: str
    data: str
    image_size: int = 0
    public: str = ""

    def write(self, folder: Path) -> Path:
        """Write site.toml into the site's folder."""
        path = folder / SITE_FILE
        write_whole(path, tomli_w.dumps(asdict(self)).encode())
        return path


def read_site(path: Path) -> SiteConfig:
    """Return what site.toml says."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise DataError(f"{path} cannot be read: {problem}; `fedsir flower site` writes one") from None
    known = {field.name for field in fields(SiteConfig)}
    if not {"client_id", "data"} <= found.keys() <= known:
        raise DataError(f"{path} must hold client_id and data, and may hold image_size and public; nothing else")
    return SiteConfig(**found)


@dataclass(frozen=True, eq=False)
class SiteData:
    """The samples of a site.

    Attributes
    ----------
    images : (m, channels, height, width)
    labels : (m,) given labels, by number in `class_names`
    class_names : of this site alone
    is_held_out : (m,) what the site tests on
    names : what the site knows the samples by that it trains on
    sha256 : over all of it
    """

    images: Images
    labels: Labels
    class_names: tuple[str, ...]
    is_held_out: np.ndarray[Any, np.dtype[np.bool_]]
    names: tuple[str, ...]
    sha256: str

    def describe(self) -> dict[str, Any]:
        """Return what the server is told before anything trains: form, names and sums, and no sample."""
        train = self.images[~self.is_held_out].astype(np.int64)
        axes = (0, 2, 3)
        return {
            "version": __version__,
            "class_names": list(self.class_names),
            "channels": int(self.images.shape[1]),
            "image_size": [int(side) for side in self.images.shape[2:]],
            "n_train": int((~self.is_held_out).sum()),
            "n_held_out": int(self.is_held_out.sum()),
            "n_pixels": int(train[:, 0].size),
            "pixel_sum": train.sum(axis=axes).tolist(),
            "pixel_square_sum": (train**2).sum(axis=axes).tolist(),
            "data_sha256": self.sha256,
        }


def load_site_data(site: SiteConfig, cache: Path | None = None) -> SiteData:
    """Return a site's data, from the copy in `cache` where the originals have not changed since."""
    path = Path(site.data)
    if not path.exists():
        raise DataError(f"{path} is not there: `data` in {SITE_FILE} must name an npz file or a folder")
    mark = _mark(site, path)
    copy = None if cache is None else cache / f"{file_name(site.client_id)}.npz"
    if copy is not None and (found := _from_copy(copy, mark)) is not None:
        return found
    data = _read(site)
    if copy is not None:
        content = io.BytesIO()
        np.savez(
            content,
            images=data.images,
            labels=data.labels,
            class_names=np.array(data.class_names),
            is_held_out=data.is_held_out,
            names=np.array(data.names),
            about=np.array(json.dumps({"mark": mark, "sha256": data.sha256})),
        )
        write_whole(copy, content.getvalue())
    return data


def _read(site: SiteConfig) -> SiteData:
    source = load_source(site.data, data_dir=Path(), seed=0, image_size=site.image_size or None)
    owners = [] if source.clients is None else sorted(set(source.clients.tolist()))
    if len(owners) > 1:
        raise DataError(
            f"{site.data} holds the data of clients {', '.join(owners[:5])}: a site has those of one client"
        )
    rows = source.train_rows
    images = source.images[np.concatenate([rows, source.test_rows])]
    labels = np.concatenate([source.train_labels, source.test_labels])
    is_held_out = np.arange(len(images)) >= len(rows)
    names = source.sample_names or tuple(str(row) for row in rows)
    digest = fingerprint(images=images, labels=labels, class_names=source.class_names, held=is_held_out)
    return SiteData(images, labels, source.class_names, is_held_out, names, digest)


def _mark(site: SiteConfig, path: Path) -> str:
    """Return a hash over names, sizes and times of a site's files: what changes when they do."""
    digest = hashlib.sha256(json.dumps([__version__, asdict(site)]).encode())
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        about = file.stat()
        digest.update(f"{os.fsdecode(file)}\0{about.st_size}\0{about.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _from_copy(copy: Path, mark: str) -> SiteData | None:
    try:
        with np.load(copy, allow_pickle=False) as found:
            about = json.loads(str(found["about"]))
            if about["mark"] != mark:
                return None
            return SiteData(
                found["images"],
                found["labels"],
                tuple(found["class_names"].tolist()),
                found["is_held_out"],
                tuple(found["names"].tolist()),
                about["sha256"],
            )
    except (OSError, ValueError, KeyError, EOFError):  # none yet, or one that was cut short: the originals are there
        return None
