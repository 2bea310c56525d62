"""A checkpoint: all that a run needs to go on after any round to the same bytes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedsir.engines.wire import WireError, decode, encode
from fedsir.errors import RunFolderError
from fedsir.methods.reply_check import Form, ReplyFault, read_state
from fedsir.simulation.simulation import Snapshot

if TYPE_CHECKING:
    from fedsir.methods.base import Payload, ServerState
    from fedsir.methods.replies import ClientId

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


def from_bytes(
    content: bytes,
    state_type: type[ServerState],
    form: Form,
    sizes: Mapping[ClientId, int],
    config_sha256: str,
) -> Snapshot:
    """Read a checkpoint; one of another run, version or method is an error, and so is a damaged one.

    `sizes` are the samples of each client.
    """
    try:
        tree = decode(content)
        if tree["format"] != FORMAT:
            raise RunFolderError(
                "the checkpoint was written by another version of fedsir. Go on with that one, or choose another --out."
            )
        if tree["config_sha256"] != config_sha256:
            raise RunFolderError(
                "the checkpoint belongs to another run, or to a version of fedsir with other settings. Go on with that "
                "version, or choose another --out."
            )
        t, seconds = tree["round"], tree["seconds"]
        if type(t) is not int or t < 0 or type(seconds) not in (int, float) or not 0 <= seconds < math.inf:
            raise ValueError("round or seconds is not a number")
        state, states = read_state(state_type, tree["state"], form), _unpacked(tree["clients"])
        named = set(states) if state.split is None else {*states, *state.split.clean, *state.split.untrusted}
        if strangers := named - sizes.keys():
            raise ValueError(f"there is no client {min(strangers)!r}")
        for client, packed in states.items():
            _check_client_state(decode(packed), form, sizes[client])
        return Snapshot(t, state, states, float(seconds))
    except (WireError, ReplyFault, LookupError, TypeError, ValueError, AttributeError) as problem:
        raise RunFolderError(
            f"the checkpoint is damaged: {problem}. Remove the folder and run the command again, or restore the file "
            "from a copy."
        ) from problem


def _check_client_state(state: Any, form: Form, n_samples: int) -> None:
    """Refuse what no client can have written; entries that only its method knows are the method's business."""
    if not isinstance(state, dict):
        raise ValueError("what a client remembers is not a mapping")
    labels, model = state.get("corrected_labels"), state.get("model")
    if labels is not None:
        is_right = isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.shape == (n_samples,)
        if not is_right or bool(((labels < 0) | (labels >= form.sizes["classes"])).any()):
            raise ValueError("corrected labels are not one class per sample")
    if model is not None and Form.of(model).model != form.model:
        raise ValueError("a client's model has other tensors than the model")


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
