"""A checkpoint: all that a run needs to go on after any round to the same bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import RunFolderError

if TYPE_CHECKING:
    from fedsir.methods.base import Method, ServerState

FORMAT = 1


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
                "clients": {
                    client: torch.from_numpy(np.frombuffer(state, dtype=np.uint8).copy())
                    for client, state in sorted(self.client_states.items())  # not in order of arrival
                },
                "seconds": self.seconds,
                "config_sha256": self.config_sha256,
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes, method: type[Method], config_sha256: str) -> Checkpoint:
        """Read a checkpoint; one of another run, format or method is an error."""
        try:
            tree = decode(content)
            if tree["format"] != FORMAT or tree["config_sha256"] != config_sha256:
                raise RunFolderError("The checkpoint belongs to another run: choose another --out.")
            return cls(
                round=tree["round"],
                state=method.State.from_tree(tree["state"]),
                client_states={client: state.numpy().tobytes() for client, state in tree["clients"].items()},
                seconds=tree["seconds"],
                config_sha256=config_sha256,
            )
        except (WireError, KeyError, TypeError, AttributeError) as problem:
            raise RunFolderError(f"The checkpoint cannot be read: {problem}. Choose another --out.") from problem
