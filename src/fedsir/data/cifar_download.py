"""Fetch a CIFAR archive from its authors; only ever called when the user asked for it."""

from __future__ import annotations

import shutil
import tarfile
import zlib
from typing import TYPE_CHECKING

from fedsir.data.cifar_facts import HOME
from fedsir.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from fedsir.data.cifar_facts import Cifar, Layout


def download_cifar(cifar: Cifar, data_dir: Path) -> None:
    """Put the files of the archive's layout into ``data_dir``, after checking the archive's published MD5."""
    import pooch
    import requests

    url = f"{HOME}/{cifar.archive}"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        archive = data_dir / cifar.archive
        pooch.retrieve(url, known_hash=f"md5:{cifar.archive_md5}", fname=cifar.archive, path=data_dir)
        unpack(archive, cifar.layouts[0], data_dir)
        archive.unlink()
    except (requests.RequestException, OSError, ValueError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise DataError(
            f"could not download {url} into {data_dir} ({reason[:200]}); check the connection and the disk, "
            "or fetch the archive on another machine and unpack it there"
        ) from None


def unpack(archive: Path, layout: Layout, data_dir: Path) -> None:
    """Write the files of one layout from a tar archive, and nothing else that may be in it.

    Only names known beforehand are read and written, so no path in the archive can lead elsewhere.
    """
    # The folder appears under its name only when it is whole.
    unfinished = data_dir / f"{layout.folder}.unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive) as opened:
            for file in [*layout.train, *layout.test]:
                member = opened.extractfile(f"{layout.folder}/{file}")
                if member is None:
                    raise DataError(f"{archive}: {layout.folder}/{file} is not a plain file in this archive")
                with member, (unfinished / file).open("wb") as target:
                    shutil.copyfileobj(member, target)
    except (tarfile.TarError, KeyError, EOFError, zlib.error) as problem:
        raise DataError(f"{archive} is not the archive it should be ({problem}); delete it and try again") from None
    unfinished.rename(data_dir / layout.folder)
