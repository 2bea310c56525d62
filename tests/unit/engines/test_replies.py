"""Replies of one ask: in federation order, the large ones on disk."""

from typing import Any

import pytest
import torch

from fedsir.engines.replies import Replies
from fedsir.engines.wire import encode


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
