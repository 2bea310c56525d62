"""Who is there: node ids of Flower's are not names, so each node is asked who it is."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from fedsir.engines.flower.client import WHOAMI
from fedsir.engines.flower.records import read_note
from fedsir.errors import FedsirError
from fedsir.methods.own_code import said
from fedsir.methods.replies import ClientId

SHORTEST_WAIT, LONGEST_WAIT = 0.05, 1.0  # seconds between two looks for replies
SILENT = "it does not say who it is"
MOST_QUESTIONS = 3  # to a node that is silent: it may be slow to start, but each question costs time
REASONS = {
    1: "its app could not be loaded",
    2: "its app failed",
    3: "the message for it is gone",
    4: "its answer is gone",
    5: "its node is not connected",
    8: "its process died",
}
"""What Flower's error codes mean for a client."""


class GridError(FedsirError):
    """A federation on Flower that cannot go on."""


@dataclass(frozen=True)
class Present:
    """A node that said who it is: its client, and what it says about its data."""

    client: ClientId
    node: int
    note: dict[str, Any]


@dataclass
class Roster:
    """The nodes of a federation by the client they are; asks new ones, and those alone."""

    grid: Grid
    patience: float  # seconds for a node to say who it is
    accepts: Callable[[Present], str | None] = lambda _: None  # why a node cannot take part
    check: Callable[[], None] = lambda: None  # raises if no answer can come any more
    refused: dict[int, str] = field(default_factory=dict)  # node → why
    _present: dict[ClientId, Present] = field(default_factory=dict)
    _name_of: dict[int, ClientId] = field(default_factory=dict)  # node → who it says it is
    _asked: set[int] = field(default_factory=set)  # not to be asked again
    _n_asked: Counter[int] = field(default_factory=Counter)

    def look(self) -> dict[ClientId, Present]:
        """Return who is connected now, by client."""
        connected = set(self.grid.get_node_ids())
        self._present = {k: found for k, found in self._present.items() if found.node in connected}
        self._asked &= connected  # a node that comes back may be another client
        self.refused = {node: why for node, why in self.refused.items() if node in connected}
        new = sorted(connected - self._asked)
        for node, note in self._whoami(new):
            self._n_asked[node] += 1
            if note != SILENT or self._n_asked[node] >= MOST_QUESTIONS:
                self._asked.add(node)
            self.refused.pop(node, None)
            if isinstance(note, str):
                self.refused[node] = note
                continue
            if isinstance(note.get("client"), str):
                self._name_of[node] = note["client"]
            if "problem" in note:
                self.refused[node] = str(note["problem"])
                continue
            found = Present(note.pop("client"), node, note)
            if found.client in self._present:
                self.refused[node] = f"client {found.client!r} is already connected: two sites have the same client id"
            elif (why := self.accepts(found)) is not None:
                self.refused[node] = f"client {found.client!r}: {why}"
            else:
                self._present[found.client] = found
        return dict(self._present)

    def refusals(self) -> dict[str, str]:
        """Return why nodes cannot take part, by the name they give, or by their number if they give none."""
        return {self._name_of.get(node, f"node {node}"): why for node, why in self.refused.items()}

    def only(self, accepts: Callable[[Present], str | None]) -> None:
        """From now on leave out nodes for which `accepts` has a reason."""
        self.accepts = accepts
        for client, found in list(self._present.items()):
            if (why := accepts(found)) is not None:
                self.refused[found.node] = f"client {client!r}: {why}"
                del self._present[client]

    def _whoami(self, nodes: list[int]) -> Iterator[tuple[int, dict[str, Any] | str]]:
        """Yield what each node says of itself in the order of the nodes, or why it says nothing."""
        node_of: dict[str, int] = {}
        messages = [Message(RecordDict(), node, WHOAMI) for node in nodes]
        for message in push(self.grid, messages):
            node_of[message.metadata.message_id] = message.metadata.dst_node_id
        said_by: dict[int, dict[str, Any] | str] = dict.fromkeys(nodes, SILENT)
        for reply in replies(self.grid, node_of, self.patience, self.check):
            said_by[node_of[reply.metadata.reply_to_message_id]] = _note(reply)
        yield from said_by.items()


def push(grid: Grid, messages: list[Message]) -> list[Message]:
    """Send messages; return those that were taken, now with their ids."""
    if not messages:
        return []
    taken = set(grid.push_messages(messages))
    return [message for message in messages if message.metadata.message_id in taken]


def replies(
    grid: Grid, ids: Iterable[str], timeout: float | None, check: Callable[[], None] = lambda: None
) -> Iterator[Message]:
    """Yield the reply to each message as it comes, until all are there or time is up.

    `check` is called before each look; it raises if nothing can come any more.
    """
    waiting, wait = set(ids), SHORTEST_WAIT
    ends = None if timeout is None else time.monotonic() + timeout
    while waiting:
        check()
        found = list(grid.pull_messages(waiting))
        for reply in found:
            if reply.metadata.reply_to_message_id in waiting:
                waiting.discard(reply.metadata.reply_to_message_id)
                yield reply
        if ends is not None and time.monotonic() >= ends:
            return
        if waiting and not found:
            time.sleep(wait)
        wait = SHORTEST_WAIT if found else min(LONGEST_WAIT, wait * 1.5)


def reason(message: Message) -> str:
    """Return what an error of Flower's means for a client, in one line."""
    code, why = message.error.code, " ".join((message.error.reason or "").split())
    return f"{REASONS.get(code, f'Flower reports error {code}')}{f' ({why:.200})' if why else ''}"


def _note(reply: Message) -> dict[str, Any] | str:
    if reply.has_error():
        return reason(reply)
    try:
        note = read_note(reply.content)
        if "problem" not in note and not isinstance(note.get("client"), str):
            raise TypeError("there is no client in it")
    except (LookupError, TypeError, ValueError) as problem:
        return f"what it says of itself cannot be read: {said(problem)}"
    return note
