"""The server's side: an engine whose clients answer over a Flower `Grid`, in simulation and deployment alike."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flwr.app import Message

from fedsir.engines.base import Answer, AnyCall, Call, Engine
from fedsir.engines.flower.client import action
from fedsir.engines.flower.records import Order, bytes_record, call_records, read_answer, too_large
from fedsir.engines.flower.roster import LONGEST_WAIT, GridError, Present, Roster, push, reason, replies
from fedsir.engines.flower.site_memory import NOTHING
from fedsir.engines.wire import decode, encode
from fedsir.methods.replies import ClientId

if TYPE_CHECKING:
    from flwr.serverapp import Grid

    from fedsir.engines.client_host import ClientHost

ALWAYS_ALLOWED, MODELS_ALLOWED = 64_000_000, 8  # bytes, and models, that a reply may be as large as
TRY_AGAIN = (0, 8)  # error codes of a process that died: it may have been an accident
LATE = "it did not answer within {:g} s"


@dataclass(frozen=True)
class Link:
    """How an engine reaches its clients.

    Attributes
    ----------
    grid, roster : Flower's side, and who is there
    run : names the run, the same before and after a crash
    timeout : seconds for an answer; None waits for as long as it takes
    setup : settings of the run as JSON, for sites that cannot know them otherwise
    check : raises if no answer can come any more
    min_present : fewest clients that must be connected for a call to begin
    wait : seconds to wait for so many
    max_reply : bytes that a reply may have; None for 64 MB, or eight times the model if that is more
    """

    grid: Grid
    roster: Roster
    run: str
    timeout: float | None = None
    setup: str = ""
    check: Callable[[], None] = lambda: None
    min_present: int = 0
    wait: float = 0.0
    max_reply: int | None = None


class GridEngine(Engine):
    """Sends calls to the nodes of a grid, and keeps in mind which version of their memory counts.

    What clients remember stays with them. A checkpoint holds the version's name, and each call says which version to
    begin from. Work that is no client's is done right here, by `host`.
    """

    def __init__(self, link: Link, host: ClientHost, model_bytes: int) -> None:
        self._link, self._host = link, host
        self._max_reply = link.max_reply or max(ALWAYS_ALLOWED, MODELS_ALLOWED * model_bytes)
        self._attempt, self._turn = secrets.token_hex(4), 0
        self._versions: dict[ClientId, str] = {}
        self._settled: dict[ClientId, str] = {}

    # ------------------------------------------------------------------ calls

    def run(self, calls: Sequence[AnyCall], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        remote = []
        for call in calls:
            if isinstance(call, Call):
                remote.append(call)
            else:
                yield call, self._host.answer(call, common, NOTHING)
        if remote:
            yield from self._run_remote(remote, common)

    def _run_remote(self, calls: Sequence[Call], common: bytes) -> Iterator[tuple[AnyCall, Answer]]:
        link, record = self._link, bytes_record(common)
        present = self._present()
        absent = [call for call in calls if call.client not in present]
        for call in absent:
            yield call, Answer(None, None, 0.0, "its site is not connected")
        left = [call for call in calls if call.client in present]
        for is_last in (False, True):
            died: list[Call] = []
            messages = [
                Message(
                    call_records(self.order(call), record, call.own),
                    present[call.client].node,
                    action(call.task),
                    group_id=str(call.round),
                )
                for call in left
            ]
            call_of = {id(message): call for message, call in zip(messages, left, strict=True)}
            sent = {message.metadata.message_id: call_of[id(message)] for message in push(link.grid, messages)}
            del messages, call_of
            taken = {call.client for call in sent.values()}
            for call in left:
                if call.client not in taken:
                    yield call, Answer(None, None, 0.0, "Flower did not take the message for it")
            for reply in replies(link.grid, sent, link.timeout, link.check):
                call = sent.pop(reply.metadata.reply_to_message_id)
                if reply.has_error() and reply.error.code in TRY_AGAIN and not is_last:
                    died.append(call)
                else:
                    yield call, self._answer(call, reply)
            for call in sent.values():
                yield call, Answer(None, None, link.timeout or 0.0, LATE.format(link.timeout))
            if not died:
                return
            left = died

    def _present(self) -> dict[ClientId, Present]:
        """Return who is connected; with too few the run waits for a while, then stops."""
        link = self._link
        ends = time.monotonic() + link.wait
        while len(present := link.roster.look()) < link.min_present:
            link.check()
            if time.monotonic() >= ends:
                raise GridError(
                    f"{len(present)} of at least {link.min_present} sites are connected, and no more came within "
                    f"{link.wait:g} s. What was learnt is in the checkpoint: the same command goes on."
                )
            time.sleep(LONGEST_WAIT)
        return present

    def order(self, call: Call) -> Order:
        """Return what a site needs besides the payload to answer a call."""
        self._turn += 1
        return Order(
            run=self._link.run,
            client=call.client,
            task=call.task,
            round=call.round,
            base=self._versions.get(call.client, ""),
            settled=self._settled.get(call.client, ""),
            attempt=self._attempt,
            turn=self._turn,
            max_reply=self._max_reply,
            setup=self._link.setup,
        )

    def _answer(self, call: Call, reply: Message) -> Answer:
        if reply.has_error():
            return Answer(None, None, 0.0, reason(reply))
        answer = read_answer(reply.content)
        if answer.reply is not None and (size := len(answer.reply)) > self._max_reply:
            return Answer(None, None, answer.seconds, too_large(call.task, size, self._max_reply))
        return answer

    # ------------------------------------------------------------------ what clients remember

    def keep(self, call: Call, answer: Answer) -> None:
        self._versions[call.client] = (answer.state or b"").decode()

    def client_states(self) -> dict[ClientId, bytes]:
        """Return the version of what each client remembers; the rest is the client's own."""
        self._settled = dict(self._versions)
        return {client: encode({"version": version}) for client, version in self._versions.items() if version}

    def restore(self, states: Mapping[ClientId, bytes]) -> None:
        found = {client: decode(state).get("version") for client, state in states.items()}
        if not all(isinstance(version, str) for version in found.values()):
            raise GridError("The checkpoint was written by another engine: go on with that one (--engine local).")
        self._versions = {client: str(version) for client, version in found.items()}
        self._settled = dict(self._versions)

    def close(self) -> None:
        return None  # the grid is its owner's
