"""Views of replies: what is in them, in which order, and that nothing is read before it is asked for."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from fake_federation import trained
from fedsir.methods.replies import FieldOf, Joined


class OnDisk(Mapping[str, Any]):
    """Replies that note when they are read."""

    def __init__(self, **replies: Any) -> None:
        self.replies, self.read = replies, list[str]()

    def __getitem__(self, client: str) -> Any:
        self.read.append(client)
        return self.replies[client]

    def __iter__(self) -> Iterator[str]:
        return iter(self.replies)

    def __len__(self) -> int:
        return len(self.replies)


def test_joined_replies_come_in_the_given_order_and_hold_nobody_else() -> None:
    one, other = OnDisk(a=trained(0, 1), c=trained(0, 3)), OnDisk(b=trained(0, 2))
    joined = Joined(["c", "b", "absent"], one, other)
    assert list(joined) == ["c", "b"] and len(joined) == 2
    assert "a" not in joined and "absent" not in joined
    with pytest.raises(KeyError):
        joined["a"]
    assert (one.read, other.read) == ([], [])
    assert [reply.n_samples for reply in joined.values()] == [3, 2]
    assert (one.read, other.read) == (["c"], ["b"])


def test_a_field_of_every_reply() -> None:
    replies = OnDisk(a=trained(0, 1, 0.5), b=trained(0, 2, 0.25))
    losses = FieldOf("loss", replies)
    assert (list(losses), len(losses), replies.read) == (["a", "b"], 2, [])
    assert list(losses.values()) == [0.5, 0.25]
