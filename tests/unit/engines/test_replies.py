"""Replies of one ask: in federation order, the large ones on disk."""

import gc
import tracemalloc
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedsir.engines.replies import Replies
from fedsir.engines.wire import decode, encode
from fedsir.errors import RunFolderError
from fedsir.methods.replies import Reply, Weights
from fedsir.methods.reply_check import to_tree


@dataclass(frozen=True)
class Sent(Reply):
    model: Weights
    n_samples: int
    parts: list[Tensor]
    inner: dict[str, Any]

    @property
    def twice(self) -> int:
        return 2 * self.n_samples


def sent(value: float, n: int = 50) -> Sent:
    return Sent({"w": torch.full((n,), value)}, int(value), [torch.tensor(value)], {"of": [1, 2]})


def read(data: bytes) -> Sent:
    return Sent(**decode(data))


def put(replies: Replies[Sent], client: str, reply: Sent) -> int:
    data = encode(to_tree(reply))
    replies.put(client, data, reply)
    return len(data)


@pytest.mark.parametrize("n_in_memory", [0, 1, 3])
def test_replies_read_the_same_from_memory_and_from_disk(n_in_memory: int) -> None:
    size = len(encode(to_tree(sent(1.0))))
    replies = Replies(["a", "b", "c", "gone"], read, memory=n_in_memory * size)
    for client, value in (("c", 3.0), ("a", 1.0), ("b", 2.0)):  # any order of arrival
        put(replies, client, sent(value))
    assert list(replies) == ["a", "b", "c"]
    assert len(replies) == 3
    assert "gone" not in replies
    for _ in range(2):  # reading does not use them up
        for (_, found), value in zip(replies.items(), (1.0, 2.0, 3.0), strict=True):
            assert isinstance(found, Sent)
            assert (found.n_samples, found.twice) == (value, 2 * value)
            assert found.model["w"].tolist() == [value] * 50
            assert found.parts[0].item() == value
    with pytest.raises(KeyError):
        replies["gone"]
    assert not Replies(["a"], read)


def test_numbers_are_at_hand_without_reading() -> None:
    def no_reading(_: bytes) -> Sent:
        raise AssertionError("read from disk")

    replies = Replies(["a"], no_reading, memory=0)
    put(replies, "a", sent(5.0))
    assert (replies["a"].n_samples, replies["a"].twice, replies["a"].inner) == (5, 10, {"of": [1, 2]})
    with pytest.raises(AssertionError, match="read from disk"):
        _ = replies["a"].model


def test_replies_on_disk_take_no_memory() -> None:
    n = 250_000  # numbers of four bytes
    clients = [str(k) for k in range(20)]
    replies = Replies(clients, read, memory=8 * n + 4000)
    tracemalloc.start()
    for client in clients:
        data = encode(to_tree(sent(1.0, n)))
        replies.put(client, data, read(data))
        del data
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(replies) == 20
    assert held < 16 * n  # two replies in memory, and small things; not twenty


def test_replies_go_as_soon_as_nobody_has_them() -> None:
    replies = Replies(["a"], read, memory=0)
    put(replies, "a", sent(1.0))
    gone = weakref.ref(replies)
    gc.disable()  # a cycle would wait for the collector, and a round's models with it
    try:
        del replies
        assert gone() is None
    finally:
        gc.enable()


def test_a_reply_that_cannot_be_kept_is_one_clear_line(tmp_path: Path) -> None:
    replies = Replies(["a"], read, memory=0, folder=tmp_path / "gone")
    with pytest.raises(RunFolderError, match=r"Could not keep a client's reply in .*gone: No such file.*goes on from"):
        put(replies, "a", sent(1.0))
