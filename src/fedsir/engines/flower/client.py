"""The client's side: a ClientApp whose actions are the client tasks of a method, and `query.whoami`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from fedsir.engines.base import Answer, Call
from fedsir.engines.flower.records import Order, answer_records, note_records, read_call, too_large
from fedsir.engines.flower.site_memory import SiteError, SiteMemory
from fedsir.errors import FedsirError
from fedsir.methods.own_code import said

if TYPE_CHECKING:
    from fedsir.engines.client_host import ClientHost

WHOAMI = "query.whoami"


def action(task: str) -> str:
    """Return the message type that asks for a client task."""
    return f"train.{task}"


@dataclass(frozen=True)
class Site:
    """Where a client's half runs for one message: its host, and its memory in the run."""

    host: ClientHost
    memory: SiteMemory


class SiteOpener(Protocol):
    """Finds a node's client and its data; both may take a while, so each is done when a message asks for it."""

    def client(self, context: Context) -> str:
        """Return who this node is."""

    def describe(self, context: Context) -> dict[str, Any]:
        """Return what the server may know before it asks for anything: JSON values."""

    def open(self, order: Order, context: Context) -> Site:
        """Return where this client's half runs."""


def client_app(tasks: Iterable[str], sites: SiteOpener) -> ClientApp:
    """Return the app that answers for a site; whatever goes wrong is in the answer, not in a log."""
    app = ClientApp()
    handle = answering(sites)
    for task in tasks:
        app.train(task)(handle)

    @app.query("whoami")
    def whoami(message: Message, context: Context) -> Message:
        note: dict[str, Any] = {}
        try:
            note["client"] = sites.client(context)
            note |= sites.describe(context)
        except FedsirError as problem:
            note["problem"] = str(problem)
        return Message(note_records(note), reply_to=message)

    return app


def answering(sites: SiteOpener) -> Callable[[Message, Context], Message]:
    """Return the function that turns a call's message into its answer's."""

    def handle(message: Message, context: Context) -> Message:
        return Message(answer_records(answer_to(sites, message, context)), reply_to=message)

    return handle


def answer_to(sites: SiteOpener, message: Message, context: Context) -> Answer:
    """Run a task on this site; keep what the client remembers on its disk, and say under which name."""
    try:
        order, common, own = read_call(message.content)
        if order.client != (client := sites.client(context)):
            raise SiteError(f"the message is for client {order.client!r}, but this site is {client!r}")
        site = sites.open(order, context)
        memory = site.memory
        state = memory.read(order.base)
        memory.forget(attempt=order.attempt, round=order.round, keep=(order.base, order.settled))
        call = Call(order.client, order.task, order.round, own)
        answer = site.host.answer(call, common, state)
        if answer.reply is None or answer.state is None:
            return answer
        check_size(order, answer.reply)
        version = memory.write(order.version, answer.state)
        return Answer(answer.reply, version.encode(), answer.seconds)
    except FedsirError as problem:
        return Answer(None, None, 0.0, str(problem).rstrip("."))
    except Exception as problem:  # a message of another version, or a disk that fails: the client's, not the round's
        return Answer(None, None, 0.0, said(problem))


def check_size(order: Order, reply: bytes) -> None:
    """Refuse to send more than the server takes: far too much breaks Flower's SuperLink for all sites."""
    if len(reply) > order.max_reply:
        raise SiteError(too_large(order.task, len(reply), order.max_reply))
