"""How good the model is, as sites count it: on images that each of them held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flwr.app import Message

from fedsir.deployment.site import HELD_OUT
from fedsir.engines.base import Call
from fedsir.engines.flower.records import bytes_record, call_records, read_note
from fedsir.engines.flower.roster import push, replies
from fedsir.engines.wire import encode

if TYPE_CHECKING:
    from fedsir.engines.flower.grid import GridEngine, Link
    from fedsir.simulation.simulation import Step


@dataclass(frozen=True)
class HeldOutTest:
    """Asks each site how many of the images it held out the model gets right; a listener of the loop."""

    link: Link
    engine: Callable[[], GridEngine]
    every: int

    def __call__(self, step: Step) -> None:
        simulation = step.simulation
        if step.round % self.every and step.round != simulation.rounds:
            return
        link, record = self.link, bytes_record(encode(step.state.model))
        client_of: dict[int, str] = {}
        messages = []
        for client, found in link.roster.look().items():
            order = self.engine().order(Call(client, "held_out", step.round, b""))
            messages.append(Message(call_records(order, record, encode({})), found.node, HELD_OUT))
            client_of[found.node] = client
        sent = {m.metadata.message_id: client_of[m.metadata.dst_node_id] for m in push(link.grid, messages)}
        right: dict[str, tuple[int, int]] = {}
        for reply in replies(link.grid, sent, link.timeout, link.check):
            note = {} if reply.has_error() else _counts(reply)
            if note:
                right[sent[reply.metadata.reply_to_message_id]] = (note["n_right"], note["n"])
        n = sum(total for _, total in right.values())
        order_of = simulation.data.clients
        step.metrics["accuracy_by_site"] = {k: right[k][0] / right[k][1] for k in order_of if k in right}
        if n:
            step.metrics["accuracy"], step.metrics["n_tested"] = sum(k for k, _ in right.values()) / n, n
        if len(simulation.data.test_labels) and not simulation.method.is_personal:
            is_right = simulation.test_predictions() == simulation.data.test_labels
            step.metrics["test_accuracy"] = float(is_right.mean())


def _counts(reply: Message) -> dict[str, int]:
    """Return what a site counted; nothing of a site that could not test, or that makes no sense."""
    try:
        note = read_note(reply.content)
        n_right, n = note["n_right"], note["n"]
    except (LookupError, TypeError, ValueError):
        return {}
    is_count = type(n_right) is int and type(n) is int and 0 <= n_right <= n and n > 0
    return {"n_right": n_right, "n": n} if is_count else {}
