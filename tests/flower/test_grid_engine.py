"""An engine on a grid: who is who, what an error means, and what survives a server that dies."""

import re
from typing import Any

import pytest
import torch
from five_on_a_grid import CLIENTS, OnGrid
from flwr.app import Context, Error, Message
from misbehaving_methods import Misbehaving

from fedsir.engines.base import Answer
from fedsir.engines.flower.records import answer_records, bytes_record, note_records, read_call
from fedsir.engines.flower.roster import GridError
from fedsir.engines.flower.site_memory import SiteMemory
from fedsir.engines.wire import encode

TASKS = Misbehaving()


def memory(on_grid: OnGrid, client: str) -> SiteMemory:
    return SiteMemory(on_grid.folder, "run", client, data_sha256="")


def visits(replies: dict[str, Any]) -> list[int]:
    return [int(reply.visits) for reply in replies.values()]


# ---------------------------------------------------------------- who is who


def test_replies_go_to_the_clients_they_came_from(on_grid: OnGrid) -> None:
    """The grid hands them over in reverse order, and node ids are no names."""
    replies = on_grid.ask(TASKS.describe, n=4, model={"w": torch.arange(3.0)})
    assert list(replies) == list(CLIENTS)
    for k, reply in enumerate(replies.values()):
        assert reply.labels.tolist() == on_grid.host._spec.store.labels[5 * k : 5 * k + 5].tolist()
        assert reply.payload["n"] == 4
    assert on_grid.fed.log.bytes_down["a"] == len(encode({"n": 4, "model": {"w": torch.arange(3.0)}}))


def test_the_common_payload_is_one_object(on_grid: OnGrid) -> None:
    """Flower stores equal objects once: the model goes to the SuperLink once a round."""
    on_grid.ask(TASKS.describe, model={"w": torch.arange(3.0)})
    calls = [m for m in on_grid.grid.sent if m.metadata.message_type == "train.describe"]
    assert len(calls) == 5
    assert len({m.content["common"].object_id for m in calls}) == 1


def test_nodes_are_asked_once_who_they_are(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.describe)
    on_grid.ask(TASKS.describe)
    assert [m.metadata.message_type for m in on_grid.grid.sent].count("query.whoami") == 5


def test_a_client_comes_back_on_another_node(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.describe)
    on_grid.grid.nodes[77] = on_grid.grid.nodes.pop(1002)
    assert visits(on_grid.ask(TASKS.describe)) == [2, 2, 2, 2, 2]


def test_a_client_whose_node_is_gone_is_left_out(on_grid: OnGrid) -> None:
    del on_grid.grid.nodes[1001]
    assert list(on_grid.ask(TASKS.describe)) == ["a", "c", "d", "e"]
    assert on_grid.fed.failures == {"b": "its site is not connected"}


def test_a_second_site_of_the_same_name_is_refused(on_grid: OnGrid) -> None:
    on_grid.grid.nodes[2000] = {"partition-id": 1}
    assert list(on_grid.ask(TASKS.describe)) == list(CLIENTS)
    refused = on_grid.engine._link.roster.refused
    assert refused == {2000: "client 'b' is already connected: two sites have the same client id"}


def test_a_node_that_is_slow_to_say_who_it_is_is_asked_again(on_grid: OnGrid) -> None:
    asked = 0

    def slow(message: Message, context: Context) -> Message | None:
        nonlocal asked
        if message.metadata.message_type == "query.whoami" and context.node_id == 1003:
            asked += 1
            return on_grid.app(message, context) if asked == 2 else None
        return on_grid.app(message, context)

    on_grid.answer_with(slow)
    assert list(on_grid.ask(TASKS.describe)) == ["a", "b", "c", "e"]
    assert list(on_grid.ask(TASKS.describe)) == list(CLIENTS)
    assert on_grid.engine._link.roster.refused == {}


def test_a_node_that_never_says_who_it_is_is_asked_three_times(on_grid: OnGrid) -> None:
    def silent(message: Message, context: Context) -> Message | None:
        is_silent = message.metadata.message_type == "query.whoami" and context.node_id == 1003
        return None if is_silent else on_grid.app(message, context)

    on_grid.answer_with(silent)
    for _ in range(5):
        on_grid.ask(TASKS.process)
    questions = [m for m in on_grid.grid.sent if m.metadata.message_type == "query.whoami"]
    assert [m.metadata.dst_node_id for m in questions].count(1003) == 3
    assert on_grid.engine._link.roster.refused == {1003: "it does not say who it is"}


def test_a_message_for_somebody_else_is_refused(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.describe)
    nodes = on_grid.grid.nodes
    nodes[1000], nodes[1001] = nodes[1001], nodes[1000]  # behind the server's back
    assert list(on_grid.ask(TASKS.describe)) == ["c", "d", "e"]
    assert on_grid.fed.failures["a"] == "the message is for client 'a', but this site is 'b'"


# ---------------------------------------------------------------- what goes wrong


def by_client(on_grid: OnGrid, client: str, answer: Any) -> None:
    """Let a function answer for one client, and the app for the others."""

    def answers(message: Message, context: Context) -> Message | None:
        is_call = message.metadata.message_type.startswith("train.")
        if is_call and read_call(message.content)[0].client == client:
            replaced: Message | None = answer(message)
            return replaced
        return on_grid.app(message, context)

    on_grid.answer_with(answers)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(1, "its app could not be loaded"), (2, "its app failed"), (5, "its node is not connected")],
)
def test_an_error_of_flowers_is_the_clients_failure(on_grid: OnGrid, code: int, reason: str) -> None:
    by_client(on_grid, "d", lambda message: Message(Error(code, "no\nidea"), reply_to=message))
    assert list(on_grid.ask(TASKS.describe)) == ["a", "b", "c", "e"]
    assert on_grid.fed.failures == {"d": f"{reason} (no idea)"}


def test_a_process_that_died_is_tried_once_more(on_grid: OnGrid) -> None:
    tried: list[str] = []

    def die(times: int) -> Any:
        def answer(message: Message) -> Message:
            tried.append(message.metadata.message_id)
            if len(tried) <= times:
                return Message(Error(8, ""), reply_to=message)
            return Message(answer_records(on_grid.host.answer(*_call(message))), reply_to=message)

        return answer

    by_client(on_grid, "a", die(1))
    assert list(on_grid.ask(TASKS.process)) == list(CLIENTS)
    tried.clear()
    by_client(on_grid, "a", die(2))
    on_grid.ask(TASKS.process)
    assert on_grid.fed.failures == {"a": "its process died"}


def _call(message: Message) -> Any:
    from fedsir.engines.base import Call

    order, common, own = read_call(message.content)
    return Call(order.client, order.task, order.round, own), common, encode({})


def test_a_client_that_is_too_slow_is_left_out(on_grid: OnGrid) -> None:
    by_client(on_grid, "c", lambda message: None)
    assert list(on_grid.ask(TASKS.describe)) == ["a", "b", "d", "e"]
    assert on_grid.fed.failures == {"c": "it did not answer within 0.2 s"}


def test_a_reply_that_is_too_large_is_refused(on_grid: OnGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_grid.engine, "_max_reply", 1000)
    huge = Answer(bytes(1001), b"", 0.5)
    by_client(on_grid, "e", lambda message: Message(answer_records(huge), reply_to=message))
    on_grid.ask(TASKS.process)
    why = "its reply to process has 1,001 bytes, more than the 1,000 allowed (max-reply)"
    assert on_grid.fed.failures == {"e": why}


def test_a_site_sends_no_more_than_the_server_takes(on_grid: OnGrid, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_grid.engine, "_max_reply", 1000)
    sent: list[Message] = []

    def watched(message: Message, context: Context) -> Message:
        sent.append(on_grid.app(message, context))
        return sent[-1]

    on_grid.answer_with(watched)
    assert on_grid.ask(TASKS.describe, ["b"], model={"w": torch.zeros(1000)}) == {}  # which it sends back
    assert not sent[-1].content.array_records
    why = r"its reply to describe has 4,\d{3} bytes, more than the 1,000 allowed \(max-reply\)"
    assert re.fullmatch(why, on_grid.fed.failures["b"])
    assert not memory(on_grid, "b").versions()


@pytest.mark.parametrize("rubbish", ["note", "bytes", "pickle"])
def test_rubbish_is_the_clients_failure(on_grid: OnGrid, rubbish: str) -> None:
    def content() -> Any:
        if rubbish == "note":
            return note_records({"client": "a"})
        records = answer_records(Answer(b"these are no safetensors", b"", 0.1))
        if rubbish == "pickle":
            records["reply"]["bytes"].stype = "pickle"
        return records

    by_client(on_grid, "a", lambda message: Message(content(), reply_to=message))
    assert list(on_grid.ask(TASKS.process)) == ["b", "c", "d", "e"]
    words = {"note": "its message is not an answer", "bytes": "no fedsir payload", "pickle": "stored as 'pickle'"}
    assert words[rubbish] in on_grid.fed.failures["a"]


def test_a_task_that_fails_says_why(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.fail, victim="b")
    assert "the disk is full" in on_grid.fed.failures["b"]
    assert memory(on_grid, "a").versions()
    assert not memory(on_grid, "b").versions()


# ---------------------------------------------------------------- what clients remember


def test_the_server_knows_versions_and_no_content(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.describe)
    states = on_grid.engine.client_states()
    version = memory(on_grid, "a").versions()
    assert states["a"] == encode({"version": version[0]})
    assert len(version) == 1


def test_a_server_that_died_in_a_round_begins_that_round_anew(on_grid: OnGrid) -> None:
    """Round 1 has a checkpoint; round 2 is cut short after some clients have already counted their visit."""
    on_grid.ask(TASKS.describe)
    checkpoint = on_grid.engine.client_states()
    on_grid.fed.begin_round(2)
    on_grid.ask(TASKS.describe, ["a", "b"])
    on_grid.ask(TASKS.describe, ["a"])
    on_grid.restart()
    on_grid.engine.restore(checkpoint)
    on_grid.fed.begin_round(2)
    assert visits(on_grid.ask(TASKS.describe)) == [2, 2, 2, 2, 2]
    assert visits(on_grid.ask(TASKS.describe)) == [3, 3, 3, 3, 3]


def test_two_rounds_lie_on_the_disk_and_no_more(on_grid: OnGrid) -> None:
    for t in range(1, 6):
        on_grid.fed.begin_round(t)
        on_grid.ask(TASKS.describe)
        on_grid.ask(TASKS.describe)
        on_grid.engine.client_states()  # as the loop does at the end of a round
    rounds = [version.partition("-")[0] for version in memory(on_grid, "c").versions()]
    assert rounds == ["000004", "000005", "000005"]


def test_an_answer_that_does_not_count_is_forgotten(on_grid: OnGrid) -> None:
    """It came too late or was rubbish: the client goes on from what it remembered before."""
    on_grid.ask(TASKS.describe)
    on_grid.answer_with(lambda message, context: on_grid.app(message, context) and None)
    assert on_grid.ask(TASKS.describe) == {}
    on_grid.answer_with(on_grid.app)
    assert visits(on_grid.ask(TASKS.describe)) == [2, 2, 2, 2, 2]


def test_a_site_that_lost_its_memory_says_so(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.describe)
    for path in memory(on_grid, "b").folder.iterdir():
        path.unlink()
    damaged = next(memory(on_grid, "c").folder.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert list(on_grid.ask(TASKS.describe)) == ["a", "d", "e"]
    assert "does not have what it remembered in version 000001-" in on_grid.fed.failures["b"]
    assert "what it remembers is damaged" in on_grid.fed.failures["c"]


def test_memory_belongs_to_its_data_run_and_client(on_grid: OnGrid) -> None:
    on_grid.ask(TASKS.describe)
    mine = memory(on_grid, "a")
    version = mine.versions()[0]
    other_data = SiteMemory(on_grid.folder, "run", "a", data_sha256="other")
    with pytest.raises(Exception, match="its data have changed"):
        other_data.read(version)
    stranger = memory(on_grid, "b")
    stranger.folder.joinpath("stolen.safetensors").write_bytes(
        mine.folder.joinpath(f"{version}.safetensors").read_bytes()
    )
    with pytest.raises(Exception, match="another run or client"):
        stranger.read("stolen")


def test_a_checkpoint_of_the_local_engine_is_refused(on_grid: OnGrid) -> None:
    with pytest.raises(GridError, match="another engine"):
        on_grid.engine.restore({"a": encode({"visits": torch.tensor(1)})})


def test_names_of_clients_are_no_paths(on_grid: OnGrid) -> None:
    odd = ["..", "a/b", "a%2Fb", "x" * 500, "", "Ä", "\udc80"]
    folders = [memory(on_grid, name).folder for name in odd]
    assert len(set(folders)) == len(odd)
    assert all(folder.parent.parent == on_grid.folder for folder in folders)
    for name in odd:
        SiteMemory(on_grid.folder, "run", name.replace("\udc80", ""), "").write("v", bytes_record(b"1")["bytes"].data)
