"""Calls and answers as Flower's records. What travels are the bytes of `engines.wire`; nothing is pickled.

A payload is one array of bytes. Flower cuts arrays into pieces and stores equal pieces once, so the common part of an
`ask` goes to the SuperLink once, however many clients it is for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedsir.engines.base import Answer
from fedsir.engines.wire import WireError
from fedsir.methods.own_code import said

WIRE = "fedsir.wire"


@dataclass(frozen=True)
class Order:
    """What a site needs besides the payload to answer a call.

    Attributes
    ----------
    run : which run it is, the same before and after a crash
    client : who is meant; a site that is somebody else refuses
    task, round : as in `Call`
    base : version of what the client remembers to start from; "" is nothing
    settled : version that the server's last checkpoint names; "" is nothing
    attempt : names this attempt of the server; what an earlier one left unfinished does not count
    turn : number of this call in the attempt, so that no two versions have one name
    max_reply : bytes that the reply may have; a site sends no more
    setup : settings of the run as JSON, for sites that cannot know them otherwise
    """

    run: str
    client: str
    task: str
    round: int
    base: str
    settled: str
    attempt: str
    turn: int
    max_reply: int
    setup: str = ""

    @property
    def version(self) -> str:
        """The name of what the client remembers after this call."""
        return f"{self.round:06d}-{self.attempt}-{self.turn:06d}"


def call_records(order: Order, common: ArrayRecord, own: bytes) -> RecordDict:
    """Return a call as the content of a message; `common` is one object for all clients of an `ask`."""
    return RecordDict({"order": ConfigRecord(asdict(order)), "common": common, "own": bytes_record(own)})


def read_call(content: RecordDict) -> tuple[Order, bytes, bytes]:
    """Return the order, the common and the own payload of a message."""
    return _fields(Order, content.config_records["order"]), _bytes(content, "common"), _bytes(content, "own")


def answer_records(answer: Answer) -> RecordDict:
    """Return an answer as the content of a message; what the client remembers is named, and stays where it is."""
    about: dict[str, Any] = {
        "seconds": answer.seconds,
        "version": (answer.state or b"").decode(),
        "failure": answer.failure or "",
    }
    content = RecordDict({"answer": ConfigRecord(about)})
    if answer.reply is not None:
        content["reply"] = bytes_record(answer.reply)
    return content


def read_answer(content: RecordDict) -> Answer:
    """Return the answer in a message; one of another form is the sender's failure."""
    try:
        about = content.config_records["answer"]
        seconds, version, failure = about["seconds"], about["version"], about["failure"]
        if not (isinstance(seconds, float) and isinstance(version, str) and isinstance(failure, str)):
            raise TypeError("seconds, version and failure have other types")
        if failure:
            return Answer(None, None, seconds, failure)
        return Answer(_bytes(content, "reply"), version.encode(), seconds)
    except (WireError, LookupError, TypeError, ValueError) as problem:
        return Answer(None, None, 0.0, f"its message is not an answer: {said(problem)}")


def too_large(task: str, size: int, allowed: int) -> str:
    """Return why a reply is not taken; a site says it before it sends, the server of a site that sends all the same."""
    return f"its reply to {task} has {size:,} bytes, more than the {allowed:,} allowed (max-reply)"


def bytes_record(data: bytes) -> ArrayRecord:
    """Return bytes of the wire as a record."""
    return ArrayRecord({"bytes": Array(dtype="uint8", shape=(len(data),), stype=WIRE, data=data)})


def note_records(note: dict[str, Any]) -> RecordDict:
    """Return a small JSON object as the content of a message."""
    return RecordDict({"note": ConfigRecord({"json": json.dumps(note)})})


def read_note(content: RecordDict) -> dict[str, Any]:
    """Return the JSON object of `note_records`."""
    text = content.config_records["note"]["json"]
    note = json.loads(text) if isinstance(text, str) else None
    if not isinstance(note, dict):
        raise TypeError("the note is not a JSON object")
    return note


def _bytes(content: RecordDict, name: str) -> bytes:
    array = content.array_records[name]["bytes"]
    if array.stype != WIRE:
        raise WireError(f"{name} is stored as {array.stype!r}, not as {WIRE!r}.")
    return array.data


def _fields(kind: type[Order], record: ConfigRecord) -> Order:
    values: dict[str, Any] = {name: record[name] for name in kind.__dataclass_fields__}
    return kind(**values)
