"""A review without its page: the suspicious samples, what was decided about each, and undo."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsir.auditing.decisions import FILE_NAME, Decision, Journal
from fedsir.auditing.folder import AuditFolder
from fedsir.auditing.review.images import SampleImages, images_of
from fedsir.errors import DataError


class RequestError(DataError):
    """The page asked for something that is not in this review."""


@dataclass(frozen=True)
class Suspect:
    """A sample whose label looks wrong; `score` is the probability that the given label is right."""

    client: str
    id: str
    path: str
    given: str
    suggested: str
    score: float
    probability: float


class Review:
    """One person's way through an audit's suspicious samples: clients worst first, samples of each worst first.

    Parameters
    ----------
    client : only this one's samples
    data : where the audited data lie now, if they were moved
    """

    def __init__(self, folder: AuditFolder, client: str | None = None, data: Path | None = None) -> None:
        self.folder, self.client = folder, client
        self.class_names = folder.class_names
        if client is not None:
            folder.client_folder(client)  # an error that names the client it may have meant
        self.clients = folder.client_names if client is None else [client]
        self.samples = [suspect for name in self.clients for suspect in _suspects(folder, name)]
        self._position = {(sample.client, sample.id): i for i, sample in enumerate(self.samples)}
        self._ids: dict[str, set[str]] = {}
        for sample in self.samples:
            self._ids.setdefault(sample.client, set()).add(sample.id)
        self._journals = {name: Journal(folder.client_folder(name) / FILE_NAME) for name in self.clients}
        self._lock = threading.Lock()  # journals are read and written by one thread at a time
        self.images: SampleImages = images_of(folder.audit, [(sample.id, sample.path) for sample in self.samples], data)

    def decided(self) -> dict[int, Decision]:
        """Return the decision that counts, by the sample's place in `samples`; others may have added some."""
        with self._lock:
            for journal in self._journals.values():
                journal.refresh()
            return {
                self._position[client, sample]: decision
                for client, journal in self._journals.items()
                for sample, decision in journal.decisions.by_id().items()
                if (client, sample) in self._position
            }

    def last(self) -> int | None:
        """Return the place of the sample that was decided last."""
        decided = self.decided()
        return max(decided, key=lambda i: decided[i].time) if decided else None

    def decide(self, place: Any, action: Any, label: Any = None) -> Decision:
        """Save what is to happen to a sample; what comes from the page is checked here."""
        sample = self.sample(place)
        if action == "correct":
            if label not in self.class_names:
                raise RequestError(f"There is no class {label!r}.")
            # Whichever key was pressed, a decision for the given or the suggested label is one.
            action = {sample.suggested: "accept", sample.given: "reject"}.get(label, "correct")
        elif action == "accept":
            label = sample.suggested
        elif action == "reject":
            label = sample.given
        else:
            raise RequestError(f"There is no action {action!r}.")
        with self._lock:
            return self._journals[sample.client].append(sample.id, action, label)

    def undo(self) -> tuple[int, Decision] | None:
        """Take the last decision back and return the sample's place and what it was; None if nothing is left."""
        with self._lock:
            latest: tuple[str, str] | None = None
            for client, ids in self._ids.items():
                last = self._journals[client].refresh().last(ids)
                if last is not None and (latest is None or last.time >= latest[0]):
                    latest = last.time, client
            if latest is None:
                return None
            client = latest[1]
            undone = self._journals[client].undo(self._ids[client])
            return None if undone is None else (self._position[client, undone.id], undone)

    def sample(self, place: Any) -> Suspect:
        """Return the sample at a place that the page named."""
        if type(place) is not int or not 0 <= place < len(self.samples):
            raise RequestError(f"There is no sample {place!r} in this review.")
        return self.samples[place]

    def torn(self) -> list[str]:
        """Return a sentence for each line that a crash has cut short."""
        return [
            f"{journal.path}: line {line} was cut short by a crash and does not count; decide that sample again."
            for journal in self._journals.values()
            for line in journal.decisions.torn
        ]

    def n_unlisted(self) -> int:
        """Return how many decisions are about samples that the audit does not call suspicious (any more)."""
        with self._lock:
            return sum(
                (client, sample) not in self._position
                for client, journal in self._journals.items()
                for sample in journal.refresh().by_id()
            )


def _suspects(folder: AuditFolder, client: str) -> list[Suspect]:
    table = folder.samples(client)
    table = table.take(table["is_label_issue"].astype(bool))
    names = ("id", "path", "given_label", "suggested_label", "score", "suggested_probability")
    columns = [table[name].tolist() for name in names]
    return [Suspect(client, *row) for row in zip(*columns, strict=True)]
