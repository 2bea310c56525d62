"""A checkpoint: all that a run needs to go on after any round to the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import RunFolderError
from fedsir.methods.reply_check import Form, ReplyFault, read_state
from fedsir.simulation.simulation import Snapshot

if TYPE_CHECKING:
    from fedsir.methods.base import Payload, ServerState

FORMAT = 2


def to_bytes(snapshot: Snapshot, config_sha256: str) -> bytes:
    """Return a snapshot of the run with these settings as the content of a file."""
    return encode(
        {
            "format": FORMAT,
            "round": snapshot.round,
            "state": snapshot.state.to_tree(),
            "clients": _packed(snapshot.client_states),
            "seconds": snapshot.seconds,
            "config_sha256": config_sha256,
        }
    )


def from_bytes(content: bytes, state_type: type[ServerState], form: Form, config_sha256: str) -> Snapshot:
    """Read a checkpoint; one of another run, version or method is an error, and so is a damaged one."""
    try:
        tree = decode(content)
        if tree["format"] != FORMAT:
            raise RunFolderError(
                "the checkpoint was written by another version of fedsir. Go on with that one, or choose another --out."
            )
        if tree["config_sha256"] != config_sha256:
            raise RunFolderError("the checkpoint belongs to another run. Choose another --out.")
        if type(tree["round"]) is not int or tree["round"] < 0 or not isinstance(tree["seconds"], int | float):
            raise ValueError("round and seconds are not numbers")
        states = _unpacked(tree["clients"])
        if not all(isinstance(decode(state), dict) for state in states.values()):
            raise ValueError("what a client remembers is not a mapping")
        return Snapshot(tree["round"], read_state(state_type, tree["state"], form), states, float(tree["seconds"]))
    except (WireError, ReplyFault, LookupError, TypeError, ValueError, AttributeError) as problem:
        raise RunFolderError(
            f"the checkpoint is damaged: {problem}. Remove the folder and run the command again, or restore the file "
            "from a copy."
        ) from problem


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
