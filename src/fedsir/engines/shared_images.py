"""Images that the worker processes of a run share: in memory once for all of them."""

from __future__ import annotations

import sys
import tempfile
from multiprocessing import reduction
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from fedsir.errors import RunFolderError

if TYPE_CHECKING:
    from fedsir.data.arrays import Images


class SharedImages(np.ndarray[tuple[int, ...], np.dtype[np.uint8]]):
    """Images that lie in a file; a worker process that is sent them gets the file and maps it too."""

    file: IO[bytes] | None = None  # a part of the images has none, and travels as any array does

    def __reduce__(self) -> Any:
        if self.file is None:
            return super().__reduce__()
        return _received, (reduction.DupFd(self.file.fileno()), self.shape)


def shared(images: Images) -> Images:
    """Return images (m, channels, height, width) as worker processes can share them; let go of what you passed.

    Their file has no name, so nothing is left behind however these processes end.
    """
    is_shared = isinstance(images, SharedImages) and images.file is not None
    if is_shared or sys.platform == "win32":  # where no open file is handed on: each worker gets a copy
        return images
    try:
        file = tempfile.TemporaryFile(prefix="fedsir-images-")  # noqa: SIM115 - lives as long as the images
        # Not through a mapping: on a full disk that would end the process with a bus error instead of a message.
        file.write(np.ascontiguousarray(images).data)
        file.flush()
    except OSError as problem:
        raise RunFolderError(
            f"Could not write the images that workers share to {tempfile.gettempdir()}: {problem.strerror}. Make "
            "room, name another folder for temporary files with TMPDIR, or use --workers 1."
        ) from None
    return _mapped(file, images.shape)


def _received(sent: Any, shape: tuple[int, ...]) -> Images:
    return _mapped(open(sent.detach(), "rb"), shape)  # noqa: PTH123 - a descriptor, kept open


def _mapped(file: IO[bytes], shape: tuple[int, ...]) -> Images:
    """Return the images in a file without reading them: pages are in memory once, whoever maps them."""
    images = np.memmap(file, np.uint8, mode="r", shape=shape).view(SharedImages)
    images.file = file
    return images
