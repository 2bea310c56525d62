"""What a client remembers, on its own disk: a file for each version that a server may still come back to.

The server names versions and decides which one counts. A version is written beside and renamed, so it is there whole or
not at all. What remains after each call is the version that the server's last checkpoint names, the one the call began
from, and those of the round that is under way: if the server dies, it says "go on from round t", and the client can.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import numpy as np

from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import FedsirError

NOTHING = encode({})
SUFFIX = ".safetensors"


class SiteError(FedsirError):
    """A site that cannot answer; the message becomes the client's failure."""


@dataclass(frozen=True)
class SiteMemory:
    """One client's memory in one run.

    Attributes
    ----------
    root : folder of the site
    run, client : whose memory it is
    data_sha256 : of the data that the memory belongs to
    """

    root: Path
    run: str
    client: str
    data_sha256: str

    @property
    def folder(self) -> Path:
        """Where the versions lie."""
        return self.root / file_name(self.run) / file_name(self.client)

    def read(self, version: str) -> bytes:
        """Return the state of a version, as it is on the wire; "" is the version of a client that remembers nothing."""
        if not version:
            return NOTHING
        path = self.folder / f"{version}{SUFFIX}"
        try:
            found = decode(path.read_bytes())
            of, state = [found[key] for key in ("run", "client", "version", "data_sha256")], found["state"]
        except FileNotFoundError:
            raise SiteError(f"it does not have what it remembered in version {version}: {path} is missing") from None
        except OSError as problem:
            raise SiteError(f"it cannot read what it remembers in {path}: {problem.strerror}") from None
        except (WireError, LookupError, TypeError):
            raise SiteError(f"what it remembers is damaged: {path}") from None
        if of[:3] != [self.run, self.client, version]:
            raise SiteError(f"what it remembers belongs to another run or client: {path}")
        if of[3] != self.data_sha256:
            raise SiteError("its data have changed since the round before: what it remembers does not belong to them")
        return bytes(state.numpy().tobytes())

    def write(self, version: str, state: bytes) -> str:
        """Keep a state under the name of a version; return that, or "" where there is nothing to keep."""
        if state == NOTHING:
            return ""
        content = encode(
            {
                "run": self.run,
                "client": self.client,
                "version": version,
                "data_sha256": self.data_sha256,
                "state": np.frombuffer(bytearray(state), dtype=np.uint8),
            }
        )
        try:
            write_whole(self.folder / f"{version}{SUFFIX}", content)
        except OSError as problem:
            raise SiteError(f"it cannot keep what it learnt in {self.folder}: {problem.strerror}") from None
        return version

    def versions(self) -> list[str]:
        """Return the names of all versions that are there."""
        return sorted(path.name.removesuffix(SUFFIX) for path in self.folder.glob(f"*{SUFFIX}"))

    def forget(self, *, attempt: str, round: int, keep: tuple[str, ...]) -> None:
        """Remove versions that no server comes back to: all but `keep` and those of this attempt's round."""
        current = f"{round:06d}-{attempt}-"
        for version in self.versions():
            if version not in keep and not version.startswith(current):
                with contextlib.suppress(OSError):  # the next call tries again
                    (self.folder / f"{version}{SUFFIX}").unlink(missing_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all, also if the power fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)


def file_name(name: str) -> str:
    """Return a name that any file system takes, another one for another `name`, and still to be recognised."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{quote(name, safe='', errors='replace')[:60]}-{digest}"
