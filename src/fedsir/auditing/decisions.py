"""What a person decided about suspicious labels: decisions.jsonl in a client's folder, one line per key press.

A line is ``{"id", "action", "label", "time"}``. ``action`` is accept (the suggested label), reject (the given one
stays), correct (to another class) or undo; ``label`` is the label that the sample then has, null for undo. Lines are
only ever appended, each in one write to the disk. The last line of an id counts; undo takes the one before it back.

A crash can cut the last line short. That line does not count, `Decisions.torn` names it, and the next one starts
below it.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import filelock

from fedsir.errors import DataError

Action = Literal["accept", "reject", "correct", "undo"]
ACTIONS: tuple[Action, ...] = get_args(Action)
FILE_NAME = "decisions.jsonl"
LOCK_NAME = ".decisions.lock"
LOCK_SECONDS = 10.0  # appending takes milliseconds; a lock that is held longer hangs


@dataclass(frozen=True)
class Decision:
    """One line of the journal: the label that a sample has from then on, None where a line is taken back."""

    id: str
    action: Action
    label: str | None
    time: str

    def line(self) -> bytes:
        """Return the line, in ASCII: a cut in the middle of a letter cannot happen."""
        fields = {"id": self.id, "action": self.action, "label": self.label, "time": self.time}
        return json.dumps(fields).encode("ascii") + b"\n"


class Decisions:
    """What stands after some lines."""

    def __init__(self, lines: Iterable[Decision] = ()) -> None:
        self.torn: tuple[int, ...] = ()
        """Numbers, from 1, of lines that a crash cut short."""
        self._n_taken = 0
        self._standing: dict[int, Decision] = {}  # in the order of the lines
        self._lines_of: dict[str, list[int]] = {}
        for line in lines:
            self.take(line)

    def take(self, line: Decision) -> None:
        """Add the next line. An undo without anything to take back changes nothing."""
        self._n_taken += 1
        stack = self._lines_of.setdefault(line.id, [])
        if line.action != "undo":
            stack.append(self._n_taken)
            self._standing[self._n_taken] = line
        elif stack:
            del self._standing[stack.pop()]

    def of(self, sample: str) -> Decision | None:
        """Return the decision that counts for a sample, None where there is none."""
        stack = self._lines_of.get(sample)
        return self._standing[stack[-1]] if stack else None

    def last(self, among: Container[str] | None = None) -> Decision | None:
        """Return the decision that undo takes back next; of these samples only, if they are named."""
        standing = reversed(self._standing.values())
        return next((line for line in standing if among is None or line.id in among), None)

    def by_id(self) -> dict[str, Decision]:
        """Return the decision that counts, for every sample that has one."""
        return {sample: self._standing[stack[-1]] for sample, stack in self._lines_of.items() if stack}

    def labels(self) -> dict[str, str]:
        """Return the label that follows, for every sample with a decision."""
        return {sample: decision.label for sample, decision in self.by_id().items() if decision.label is not None}


class Journal:
    """A client's decisions.jsonl. Several may be open on one file, in one process or in many."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()
        self.refresh()

    def _forget(self) -> None:
        self.decisions = Decisions()
        self._identity: tuple[int, int] | None = None  # of the file
        self._offset = 0  # bytes that have been read for good
        self._n_lines = 0
        self._sealed: tuple[int, ...] = ()  # torn lines below which others follow
        self._ends_open = False  # no line break at the end: the next line needs one before it

    def refresh(self) -> Decisions:
        """Read what has been appended, by whomever, and return what stands now."""
        if self.path.exists() and not self.path.is_file():  # opening a pipe would wait for ever
            raise DataError(f"{self.path} is not a file; take it away.")
        try:
            with self.path.open("rb") as opened:
                status = os.fstat(opened.fileno())
                identity = (status.st_dev, status.st_ino)
                if identity != self._identity or status.st_size < self._offset:  # put there anew, or cut by hand
                    self._forget()
                    self._identity = identity
                opened.seek(self._offset)
                self._take(opened.read())
        except FileNotFoundError:
            self._forget()
        except OSError as problem:
            raise DataError(f"{self.path} cannot be read: {problem.strerror}.") from None
        return self.decisions

    def _take(self, text: bytes) -> None:
        if not text:
            return
        *lines, rest = text.split(b"\n")
        for line in lines:
            if self._ends_open:  # this is the line break that was missing
                self._ends_open = False
                if not line:
                    self._offset += 1
                    continue
            self._n_lines += 1
            if not self._take_line(line):
                self._sealed += (self._n_lines,)
            self._offset += len(line) + 1
        torn: tuple[int, ...] = ()
        if rest:
            # A whole line that only lost its line break counts; part of one may still become whole.
            self._ends_open = True
            if self._take_line(rest, self._n_lines + 1):
                self._n_lines += 1
                self._offset += len(rest)
            else:
                torn = (self._n_lines + 1,)
        self.decisions.torn = self._sealed + torn

    def _take_line(self, line: bytes, number: int | None = None) -> bool:
        """Whether the line is whole; an error if it is, but is not a decision."""
        if not line.strip():
            return True
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError):
            return False
        self.decisions.take(_decision(fields, f"{self.path}: line {number or self._n_lines}"))
        return True

    def append(self, sample: str, action: Action, label: str) -> Decision:
        """Write one decision and return it when it is on the disk; the same one again adds no line."""
        with self._locked():
            standing = self.refresh().of(sample)
            if standing is not None and (standing.action, standing.label) == (action, label):
                return standing
            decision = Decision(sample, action, label, _now())
            self._write(decision)
            return decision

    def undo(self, among: Container[str] | None = None) -> Decision | None:
        """Take the last decision, of these samples if they are named, back and return it; None if there is none."""
        with self._locked():
            last = self.refresh().last(among)
            if last is not None:
                self._write(Decision(last.id, "undo", None, _now()))
            return last

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep others from writing: what to undo is read and written as one step."""
        if not self.path.parent.is_dir():
            raise DataError(f"{self.path}: the decision cannot be saved: the client's folder is gone.")
        lock = filelock.FileLock(self.path.parent / LOCK_NAME)
        try:
            lock.acquire(timeout=LOCK_SECONDS)
        except filelock.Timeout:
            raise DataError(f"{self.path}: another program holds {LOCK_NAME}; end it and try again.") from None
        except (OSError, NotImplementedError) as problem:
            reason = getattr(problem, "strerror", None) or problem
            raise DataError(f"{self.path}: the decision cannot be saved: {reason}.") from None
        try:
            yield
        finally:
            lock.release()

    def _write(self, decision: Decision) -> None:
        line = (b"\n" if self._ends_open else b"") + decision.line()
        is_new = not self.path.exists()
        try:
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            try:
                n_written = os.write(file, line)
                os.fsync(file)
            finally:
                os.close(file)
        except OSError as problem:
            raise DataError(f"{self.path}: the decision cannot be saved: {problem.strerror}.") from None
        if n_written < len(line):  # a full disk: the part that is there counts as torn
            raise DataError(f"{self.path}: the decision cannot be saved: the disk is full.")
        if is_new:
            _sync_folder(self.path.parent)
        self.refresh()


def read_decisions(path: Path) -> Decisions:
    """Return what stands in a client's decisions.jsonl; nothing does where there is no file."""
    return Journal(path).decisions


def _decision(fields: Any, where: str) -> Decision:
    if not isinstance(fields, dict):
        raise DataError(f"{where} is not a decision (an object with id, action and label); take the line out.")
    sample, action, label, time = (fields.get(name) for name in ("id", "action", "label", "time"))
    if not isinstance(sample, str) or not sample:
        raise DataError(f"{where} names no sample: 'id' must be text; take the line out.")
    if action not in ACTIONS:
        raise DataError(f"{where} has the action {action!r}; it must be one of {', '.join(ACTIONS)}.")
    if action != "undo" and (not isinstance(label, str) or not label):
        raise DataError(f"{where} has no label: 'label' must be the name of a class; take the line out.")
    return Decision(sample, action, None if action == "undo" else label, time if isinstance(time, str) else "")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _sync_folder(folder: Path) -> None:
    """Put the name of a new file on the disk, where the system can do that."""
    with contextlib.suppress(OSError):  # Windows opens no folders
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
