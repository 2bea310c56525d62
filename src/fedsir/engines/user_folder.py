"""What all runs of one user on one machine share: a folder for temporary files, and locks on files in it.

There is no central process. A lock belongs to an open file, and the kernel lets go of it when the process ends,
however it ends; so nothing here outlives a kill but files that nobody holds.
"""

from __future__ import annotations

import contextlib
import os
import platform
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from fedsir.errors import RunFolderError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None


def user_folder() -> Path:
    """Return the folder in the machine's temporary one that only this user's processes can reach; make it."""
    # With the machine's name: temporary files may lie on a disk that several machines share, but cores do not.
    path = Path(tempfile.gettempdir()) / f"fedsir-{os.getuid()}-{platform.node()}"
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()  # not stat: a link would lead to a place that somebody else chose
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    if not is_private:
        raise RunFolderError(
            f"{path} must be a folder that you own and nobody else can use: remove it (or have its owner remove it), "
            "or name another place for temporary files with TMPDIR."
        )
    return path


def opened(path: Path) -> int:
    """Return a descriptor to lock a file by, which is made if need be; no child process inherits it."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def try_lock(descriptor: int, *, is_shared: bool = False) -> bool:
    """Lock a file if that needs no waiting; return whether it did."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unlock(descriptor: int) -> None:
    """Let go of a lock."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until no other process is in this block for the same folder, then enter it."""
    descriptor = opened(folder / "lock")
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
