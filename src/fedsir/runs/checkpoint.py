"""A checkpoint: all that a run needs to go on after any round to the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import RunFolderError

if TYPE_CHECKING:
    from fedsir.methods.base import Method, Payload, ServerState

FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """State after round `round`; client states as the bytes they have on the wire."""

    round: int
    state: ServerState
    client_states: dict[str, bytes]
    seconds: float
    config_sha256: str

    def to_bytes(self) -> bytes:
        return encode(
            {
                "format": FORMAT,
                "round": self.round,
                "state": self.state.to_tree(),
                "clients": _packed(self.client_states),
                "seconds": self.seconds,
                "config_sha256": self.config_sha256,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, method: type[Method], config_sha256: str) -> Checkpoint:
        """Read a checkpoint; one of another run, format or method is an error."""
        try:
            tree = decode(content)
            if tree["format"] != FORMAT:
                raise RunFolderError(
                    "The checkpoint was written by another version of fedsir: go on with that one, or choose another "
                    "--out."
                )
            if tree["config_sha256"] != config_sha256:
                raise RunFolderError("The checkpoint belongs to another run: choose another --out.")
            return cls(
                round=tree["round"],
                state=method.State.from_tree(tree["state"]),
                client_states=_unpacked(tree["clients"]),
                seconds=tree["seconds"],
                config_sha256=config_sha256,
            )
        except (WireError, KeyError, TypeError, ValueError, AttributeError) as problem:
            raise RunFolderError(f"The checkpoint cannot be read: {problem}. Choose another --out.") from problem


def _packed(states: dict[str, bytes]) -> Payload:
    """Return all clients' states end to end in one tensor: ten thousand small ones would be mostly header."""
    clients = sorted(states)  # not in order of arrival
    return {
        "names": clients,
        "sizes": torch.tensor([len(states[client]) for client in clients], dtype=torch.int64),
        "states": np.frombuffer(bytearray().join(states[client] for client in clients), dtype=np.uint8),
    }


def _unpacked(packed: Payload) -> dict[str, bytes]:
    content, ends = packed["states"].numpy().tobytes(), [0, *packed["sizes"].cumsum(0).tolist()]
    rows = zip(packed["names"], ends[:-1], ends[1:], strict=True)
    return {client: content[start:end] for client, start, end in rows}
