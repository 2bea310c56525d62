"""What a task can reach: its own data, never what is true."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from fedsir.data.dealing import build_federation
from fedsir.data.federation import FederatedData, GroundTruth
from fedsir.data.source import Source
from fedsir.engines.client_host import ClientHost
from fedsir.engines.federation import EngineFederation
from fedsir.methods.base import Client, Server

Runner = Callable[..., Any]


def reachable(root: Any) -> Iterator[Any]:
    """Yield every object that can be reached from `root` by attributes, items, bound methods and closures."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, type | str | bytes | int | float | None):
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, dict):
            waiting += [*node.keys(), *node.values()]
        elif isinstance(node, list | tuple | set | frozenset):
            waiting += node
        elif isinstance(node, torch.Tensor):
            base = node._base
            waiting += [base] if base is not None else []
            continue
        if callable(node):
            waiting += [cell.cell_contents for cell in getattr(node, "__closure__", None) or ()]
            waiting += [getattr(node, "__self__", None)]
        waiting.append(getattr(node, "__dict__", None))


def test_no_task_can_reach_the_true_labels(
    method: str, run_tiny: Runner, digits: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[Client | Server | EngineFederation] = []
    for maker in ("client", "_server"):
        original = getattr(ClientHost, maker)

        def noted(self: ClientHost, *words: Any, original: Any = original) -> Any:
            handed.append(original(self, *words))
            return handed[-1]

        monkeypatch.setattr(ClientHost, maker, noted)

    def federation(*words: Any, **more: Any) -> EngineFederation:
        handed.append(EngineFederation(*words, **more))  # what the server half gets
        return handed[-1]  # type: ignore[return-value]

    monkeypatch.setattr("fedsir.simulation.simulation.EngineFederation", federation)
    # One round, so that no label was corrected (perhaps to the true one) before a client was handed over.
    config = run_tiny(method, rounds=1).config
    data = build_federation(config.data, digits, seed=config.seed)
    truth = data.truth
    assert truth.true_labels is not None
    assert {client.id for client in handed if isinstance(client, Client)} == {"0", "1", "2", "3", "4"}
    assert any(isinstance(one, EngineFederation) for one in handed)
    # All true labels, the noisy clients', those of the test, and of samples that no client has, which may be public.
    nobodys = np.setdiff1d(np.arange(len(digits.train_labels)), data.source_index)
    pieces = [truth.true_labels, *(truth.true_labels[data.rows(k)] for k in "124")]
    pieces += [data.test_labels, digits.train_labels[nobodys]]
    if data.public_images is not None:
        rows = [
            int(np.flatnonzero((digits.train_images == image).all(axis=(1, 2, 3)))[0]) for image in data.public_images
        ]
        pieces.append(digits.train_labels[rows])
    n_arrays = 0
    for node in reachable(handed):
        assert not isinstance(node, GroundTruth | FederatedData)
        if isinstance(node, torch.Tensor | np.ndarray):
            n_arrays += 1
            for piece in pieces:
                assert not (tuple(node.shape) == piece.shape and np.array_equal(np.asarray(node), piece))
    assert n_arrays > 10  # the walk got somewhere
