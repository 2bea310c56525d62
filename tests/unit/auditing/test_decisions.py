"""decisions.jsonl: what stands after which lines, and what survives a crash, a second tab and a hand in the file."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsir.auditing.decisions import Decision, Decisions, Journal, read_decisions
from fedsir.errors import DataError

IDS = st.sampled_from(["a", "b", "c"])
LABELS = st.sampled_from(["cat", "dog", "naïve 猫", "<b>", '"'])
DECIDED = st.builds(Decision, IDS, st.sampled_from(["accept", "reject", "correct"]), LABELS, st.just("t"))
UNDONE = st.builds(Decision, IDS, st.just("undo"), st.none(), st.just("t"))
LINES = st.lists(st.one_of(DECIDED, DECIDED, UNDONE), max_size=30)


def labels_by_hand(lines: list[Decision]) -> dict[str, str]:
    """What the labels are, worked out id by id in the plainest way."""
    result = {}
    for sample in {line.id for line in lines}:
        stack: list[str] = []
        for line in lines:
            if line.id == sample and line.action == "undo":
                stack = stack[:-1]
            elif line.id == sample:
                stack.append(str(line.label))
        if stack:
            result[sample] = stack[-1]
    return result


def write(path: Path, lines: list[Decision]) -> bytes:
    path.write_bytes(b"".join(line.line() for line in lines))
    return path.read_bytes()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all examples of a property: each begins with a file of its own content."""
    return tmp_path_factory.mktemp("decisions")


def test_the_last_line_of_an_id_counts_and_undo_takes_one_back() -> None:
    decisions = Decisions(
        [
            Decision("7", "accept", "cat", ""),
            Decision("8", "reject", "dog", ""),
            Decision("7", "correct", "horse", ""),
        ]
    )
    assert decisions.labels() == {"7": "horse", "8": "dog"}
    assert decisions.last() == Decision("7", "correct", "horse", "")
    decisions.take(Decision("7", "undo", None, ""))
    assert decisions.labels() == {"7": "cat", "8": "dog"}
    assert decisions.last() == Decision("8", "reject", "dog", "")  # not the older decision about 7
    decisions.take(Decision("8", "undo", None, ""))
    decisions.take(Decision("7", "undo", None, ""))
    decisions.take(Decision("7", "undo", None, ""))  # nothing is left: no harm
    assert (decisions.labels(), decisions.last(), decisions.of("7"), decisions.of("9")) == ({}, None, None, None)


@given(LINES)
def test_labels_are_those_worked_out_by_hand(lines: list[Decision]) -> None:
    assert Decisions(lines).labels() == labels_by_hand(lines)


@given(LINES)
def test_what_is_written_is_read(folder: Path, lines: list[Decision]) -> None:
    write(folder / "decisions.jsonl", lines)
    read = read_decisions(folder / "decisions.jsonl")
    assert (read.labels(), read.torn) == (Decisions(lines).labels(), ())


@settings(max_examples=40)
@given(st.lists(DECIDED, max_size=12), st.integers(0, 14))
def test_undo_goes_back_step_by_step(folder: Path, lines: list[Decision], n_steps: int) -> None:
    write(folder / "decisions.jsonl", lines)
    journal = Journal(folder / "decisions.jsonl")
    undone = [journal.undo() for _ in range(n_steps)]
    expected = [*reversed(lines), *[None] * n_steps][:n_steps]
    assert undone == expected
    assert read_decisions(journal.path).labels() == labels_by_hand(lines[: max(0, len(lines) - n_steps)])


@given(st.lists(st.one_of(DECIDED, UNDONE), min_size=1, max_size=8), st.data())
def test_a_cut_at_any_byte_loses_one_line_at_most(folder: Path, lines: list[Decision], data: st.DataObject) -> None:
    path = folder / "decisions.jsonl"
    content = write(path, lines)
    cut = data.draw(st.integers(0, len(content)))
    path.write_bytes(content[:cut])
    whole = [line for i, line in enumerate(lines) if sum(len(k.line()) for k in lines[: i + 1]) - 1 <= cut]
    is_torn = content[:cut] not in [b"".join(k.line() for k in whole)[:n] for n in (None, -1)]
    assert read_decisions(path).labels() == labels_by_hand(whole)
    assert read_decisions(path).torn == ((len(whole) + 1,) if is_torn else ())

    Journal(path).append("new", "accept", "cat")  # and the next decision is safe, and says no other thing
    read = read_decisions(path)
    assert read.labels() == labels_by_hand(whole) | {"new": "cat"}
    assert read.torn == ((len(whole) + 1,) if is_torn else ())
    assert path.read_bytes().startswith(content[:cut])


@settings(max_examples=30)  # every line goes to the disk
@given(LINES, LINES)
def test_two_open_journals_see_each_other(folder: Path, first: list[Decision], second: list[Decision]) -> None:
    path = folder / "decisions.jsonl"
    path.unlink(missing_ok=True)
    one, two = Journal(path), Journal(path)
    for i in range(max(len(first), len(second))):
        for journal, lines in ((one, first), (two, second)):
            if i < len(lines) and lines[i].label is None:
                journal.undo()
            elif i < len(lines):
                journal.append(lines[i].id, lines[i].action, str(lines[i].label))
    assert one.refresh().labels() == two.refresh().labels() == read_decisions(path).labels()
    assert one.decisions.last() == two.decisions.last() == read_decisions(path).last()


def test_the_same_decision_twice_is_one_line(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "decisions.jsonl")
    first = journal.append("7", "accept", "cat")
    assert journal.append("7", "accept", "cat") == first
    assert len(journal.path.read_text().splitlines()) == 1
    line = json.loads(journal.path.read_text())
    assert list(line) == ["id", "action", "label", "time"]
    assert line["time"].endswith("Z")


def test_undo_can_be_kept_to_some_samples(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "decisions.jsonl")
    journal.append("7", "accept", "cat")
    journal.append("8", "reject", "dog")
    undone = journal.undo(among={"7"})
    assert undone is not None
    assert undone.id == "7"
    assert journal.undo(among={"7"}) is None
    assert journal.decisions.labels() == {"8": "dog"}


def test_a_last_line_that_lost_only_its_line_break_counts(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(Decision("7", "accept", "cat", "").line().rstrip())
    journal = Journal(path)
    assert (journal.decisions.labels(), journal.decisions.torn) == ({"7": "cat"}, ())
    journal.append("8", "reject", "dog")
    assert journal.decisions.labels() == read_decisions(path).labels() == {"7": "cat", "8": "dog"}
    assert journal.decisions.torn == ()


def test_a_file_that_was_emptied_or_removed_by_hand_is_read_anew(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "decisions.jsonl")
    journal.append("7", "accept", "cat")
    journal.path.write_bytes(b"")
    assert journal.refresh().labels() == {}
    journal.append("8", "accept", "cat")
    journal.path.unlink()
    assert journal.refresh().labels() == {}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("[]", "is not a decision"),
        ('{"action": "accept", "label": "cat"}', "names no sample"),
        ('{"id": 7, "action": "accept", "label": "cat"}', "names no sample"),
        ('{"id": "7", "action": "Accept", "label": "cat"}', "has the action 'Accept'"),
        ('{"id": "7", "action": "accept"}', "has no label"),
        ('{"id": "7", "action": "correct", "label": ""}', "has no label"),
    ],
)
def test_a_whole_line_that_is_no_decision_is_named(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(Decision("7", "accept", "cat", "").line() + line.encode() + b"\n")
    with pytest.raises(DataError, match=f"decisions.jsonl: line 2 {what}"):
        read_decisions(path)


def test_a_deeply_nested_line_and_zero_bytes_count_as_torn(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b"[" * 200_000 + b"\n" + b"\0" * 40 + b"\n\xff\xfe\n" + Decision("7", "accept", "cat", "").line())
    read = read_decisions(path)
    assert (read.torn, read.labels()) == ((1, 2, 3), {"7": "cat"})


def test_a_folder_in_its_place_and_a_missing_client_folder_are_errors_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").mkdir()
    with pytest.raises(DataError, match="is not a file"):
        read_decisions(tmp_path / "decisions.jsonl")
    journal = Journal(tmp_path / "gone" / "decisions.jsonl")
    with pytest.raises(DataError, match="cannot be saved: the client's folder is gone"):
        journal.append("7", "accept", "cat")


def _decide(path: Path, name: str, n: int) -> None:
    journal = Journal(path)
    for i in range(n):
        journal.append(f"{name}{i}", "correct", "cat" * 50)
        if i % 5 == 4:
            journal.append("shared", "accept", name)
            journal.undo()


def test_two_processes_lose_and_mix_nothing(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    workers = [multiprocessing.get_context("spawn").Process(target=_decide, args=(path, name, 40)) for name in "xy"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for name in "xy":
        assert [line["id"] for line in lines if line["id"][0] == name and line["action"] == "correct"] == [
            f"{name}{i}" for i in range(40)
        ]
    assert read_decisions(path).torn == ()
    n_undone = sum(line["action"] == "undo" for line in lines)
    assert n_undone == 16
    assert len(lines) == 80 + 16 + n_undone


def test_a_full_disk_is_told_and_the_next_decision_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "decisions.jsonl")
    journal.append("7", "accept", "cat")
    write_whole = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, line: write_whole(file, line[:20]))
        with pytest.raises(DataError, match="cannot be saved: the disk is full"):
            journal.append("8", "accept", "cat")
    journal.append("9", "accept", "cat")
    assert journal.decisions.labels() == read_decisions(journal.path).labels() == {"7": "cat", "9": "cat"}
    assert read_decisions(journal.path).torn == (2,)
