"""Images of a data set, in memory once per machine: a file that the processes of all runs map.

The file lies in the user's temporary folder under a name that says what is in it. A run's main process holds a shared
lock on it while the run lasts; the last one to leave removes it, and a file that a kill left behind goes when the next
run comes. All of this happens under one lock per folder, so comers and goers never meet. Workers need no lock of
their own: a mapped file stays readable when its name is gone.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedsir.engines import user_folder
from fedsir.errors import RunFolderError

if TYPE_CHECKING:
    from fedsir.data.arrays import Images

PREFIX, UNFINISHED = "images-", ".part"


@contextlib.contextmanager
def shared_images(images: Images, sha256: str, *, n_processes: int) -> Iterator[tuple[Images, Path | None]]:
    """Yield the images as all processes share them, and their file; the caller should let go of its own copy.

    Where they cannot be shared, a run of one process keeps them as they are, and the file is None.

    Parameters
    ----------
    images : (m, channels, height, width)
    sha256 : over ``images``; equal means that they are the same
    n_processes : how many processes of this run compute
    """
    shape = images.shape
    with contextlib.ExitStack() as stack:
        file = None
        try:
            file = stack.enter_context(_kept(images, sha256) if user_folder.HAS_LOCKS else _only_ours(images))
        except OSError as problem:
            if n_processes > 1:
                where = problem.filename or tempfile.gettempdir()
                raise RunFolderError(
                    f"Could not write the images that workers share to {where}: {problem.strerror}. Make room, name "
                    "another place for temporary files with TMPDIR, or use --workers 1."
                ) from None
        if file is None:
            yield images, None
        else:
            del images
            yield mapped(file, shape), file


def mapped(file: Path, shape: tuple[int, ...]) -> Images:
    """Return the images in a file, without reading them: pages are in memory once, whoever maps them.

    Writing to the array changes this process's copy of a page only, never the file.
    """
    return np.asarray(np.memmap(file, np.uint8, mode="c", shape=shape))


@dataclass(frozen=True)
class SharedFile:
    """A file of images as `fedsir doctor` shows it; one that is not in use goes when the next run comes."""

    path: Path
    n_bytes: int
    is_in_use: bool


def shared_files() -> list[SharedFile]:
    """Return the files of images that this user's runs share now."""
    if not user_folder.HAS_LOCKS:
        return []
    folder = user_folder.user_folder()
    with user_folder.alone(folder):
        return [SharedFile(path, path.stat().st_size, _is_in_use(path)) for path in sorted(folder.glob(f"{PREFIX}*"))]


@contextlib.contextmanager
def _kept(images: Images, sha256: str) -> Iterator[Path]:
    """Yield the file with these images, written unless another run has it, and keep it from being removed."""
    folder = user_folder.user_folder()
    file = folder / f"{PREFIX}{sha256}"
    with user_folder.alone(folder):
        for path in folder.glob(f"{PREFIX}*"):
            # Also if it has our name: what nobody holds may have been cut short when the machine went down.
            if not _is_in_use(path):
                path.unlink()
        if not file.exists():
            _write(file, images)
        descriptor = user_folder.opened(file)
        user_folder.try_lock(descriptor, is_shared=True)  # nobody holds it otherwise than shared, or outside `alone`
    del images
    try:
        yield file
    finally:
        # All may have been cleaned away from outside, and the name may be that of another run's file by now.
        with contextlib.suppress(FileNotFoundError), user_folder.alone(folder):
            if user_folder.try_lock(descriptor) and os.fstat(descriptor).st_nlink:
                file.unlink()
        os.close(descriptor)


@contextlib.contextmanager
def _only_ours(images: Images) -> Iterator[Path]:
    """Yield a file with these images that only this run uses, for systems without locks on open files."""
    # Windows does not remove a file that a worker which is just ending has mapped.
    with tempfile.TemporaryDirectory(prefix="fedsir-", ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "images"
        _write(file, images)
        del images
        yield file


def _is_in_use(path: Path) -> bool:
    """Whether a process holds the file; only under `alone`, which keeps the lock taken here from being seen."""
    descriptor = user_folder.opened(path)
    try:
        return not user_folder.try_lock(descriptor)
    finally:
        os.close(descriptor)


def _write(file: Path, images: Images) -> None:
    # Not through a mapping: a full disk would then end the process with a bus error instead of a message.
    unfinished = file.with_name(file.name + UNFINISHED)
    try:
        unfinished.write_bytes(images.data)
        unfinished.replace(file)
    finally:  # it is gone by now unless something went wrong, which may also be Ctrl-C
        unfinished.unlink(missing_ok=True)
