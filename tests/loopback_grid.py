"""A Flower grid without a network: messages become bytes, the app of a node answers at once, and bytes come back."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import uuid4

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as Proto
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

Answer = Callable[[Message, Context], Message | None]


def over_the_wire(message: Message) -> Message:
    return message_from_proto(Proto.FromString(message_to_proto(message).SerializeToString()))


class LoopbackGrid(Grid):
    """Nodes 1000, 1001, … have partitions 0, 1, …; replies come in the reverse order of the messages.

    `answer` may replace an app's answer; one that is None never comes.
    """

    def __init__(self, app: ClientApp, n_nodes: int, answer: Answer | None = None) -> None:
        self.nodes = {1000 + i: {"partition-id": i} for i in range(n_nodes)}
        self.answer: Answer = answer or app
        self.app = app
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # who sends
        self.sent: list[Message] = []
        self._ready: dict[str, Message] = {}

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            if message.metadata.dst_node_id not in self.nodes:
                continue
            ids.append(message.metadata.message_id)
            self.sent.append(message)
            config: Any = self.nodes[message.metadata.dst_node_id]
            context = Context(1, message.metadata.dst_node_id, config, RecordDict(), {})
            reply = self.answer(over_the_wire(message), context)
            if reply is not None:
                self._ready[message.metadata.message_id] = over_the_wire(reply)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        wanted = set(message_ids)
        return [self._ready.pop(key) for key in reversed(list(self._ready)) if key in wanted]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError
