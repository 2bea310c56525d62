"""Replies of one ask: in federation order, the large ones on disk."""

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch

from fedsir.engines import replies as module
from fedsir.engines.replies import Replies
from fedsir.engines.wire import decode, encode
from fedsir.errors import RunFolderError


def reply(value: float) -> dict[str, Any]:
    return {"model": {"w": torch.full((50,), value)}, "n_samples": int(value), "parts": [torch.tensor(value)]}


@pytest.mark.parametrize("n_in_memory", [0, 1, 3])
def test_replies_read_the_same_from_memory_and_from_disk(n_in_memory: int) -> None:
    size = len(encode(reply(1.0)))
    replies = Replies(["a", "b", "c", "gone"], memory=n_in_memory * size)
    for client, value in (("c", 3.0), ("a", 1.0), ("b", 2.0)):  # any order of arrival
        replies.put(client, encode(reply(value)), reply(value))
    assert list(replies) == ["a", "b", "c"]
    assert len(replies) == 3
    assert "gone" not in replies
    for _ in range(2):  # reading does not use them up
        for (_, found), value in zip(replies.items(), (1.0, 2.0, 3.0), strict=True):
            assert list(found) == ["model", "n_samples", "parts"]
            assert found["n_samples"] == value
            assert found["model"]["w"].tolist() == [value] * 50
            assert found["parts"][0].item() == value
            assert found.get("nothing") is None
    with pytest.raises(KeyError):
        replies["gone"]
    assert not Replies(["a"])


def test_numbers_and_keys_are_at_hand_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    replies = Replies(["a"], memory=0)
    told = {"model": {"w": torch.ones(3)}, "n_samples": 5, "statistics": {"mean": 0.5, "of": [1, 2]}}
    replies.put("a", encode(told), told)

    def no_reading(_: bytes) -> Any:
        raise AssertionError("read from disk")

    monkeypatch.setattr(module, "decode", no_reading)
    found = replies["a"]
    assert "model" in found
    assert "spectra" not in found
    assert found["n_samples"] == 5
    assert found["statistics"] == {"mean": 0.5, "of": [1, 2]}
    with pytest.raises(AssertionError, match="read from disk"):
        found["model"]


def test_replies_on_disk_take_no_memory() -> None:
    size = 1_000_000
    clients = [str(k) for k in range(20)]
    replies = Replies(clients, memory=2 * size + 1000)
    tracemalloc.start()
    for client in clients:
        data = encode({"model": {"w": torch.zeros(size, dtype=torch.uint8)}})
        replies.put(client, data, decode(data))
        del data
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(replies) == 20
    assert held < 4 * size  # two replies in memory, and small things; not twenty


def test_a_reply_that_cannot_be_kept_is_one_clear_line(tmp_path: Path) -> None:
    replies = Replies(["a"], memory=0, folder=tmp_path / "gone")
    with pytest.raises(RunFolderError, match=r"Could not keep a client's reply in .*gone: No such file.*goes on from"):
        replies.put("a", encode(reply(1.0)), reply(1.0))
