"""A review without its page: order, decisions, undo across clients, what others wrote."""

import shutil
from pathlib import Path

import pytest

from audited import CLASSES, CLIENTS, audit_of_features, samples
from fedsir.auditing.apply import apply_audit
from fedsir.auditing.decisions import Decision
from fedsir.auditing.folder import AuditFolder, AuditFolderError
from fedsir.auditing.review.session import RequestError, Review

NORTH, EAST = CLIENTS[:2]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An audit, made once: nobody changes this one."""
    return audit_of_features(tmp_path_factory.mktemp("audited") / "audit", samples())


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> AuditFolder:
    return AuditFolder(shutil.copytree(made, tmp_path / "audit"))


@pytest.fixture
def review(folder: AuditFolder) -> Review:
    return Review(folder)


def labels(review: Review) -> dict[int, tuple[str, str | None]]:
    return {place: (decision.action, decision.label) for place, decision in review.decided().items()}


def test_suspicious_samples_come_worst_client_first_and_worst_first(review: Review) -> None:
    assert {int(sample.id) for sample in review.samples} == set(samples().wrong)
    assert [sample.client for sample in review.samples] == [NORTH] * 6 + [EAST] * 2
    scores = [sample.score for sample in review.samples[:6]]
    assert scores == sorted(scores)


def test_each_action_has_the_label_that_follows(review: Review) -> None:
    given, suggested = review.samples[2].given, review.samples[2].suggested
    third = next(name for name in CLASSES if name not in (given, suggested))
    review.decide(0, "accept")
    review.decide(1, "reject")
    review.decide(2, "correct", third)
    assert labels(review) == {
        0: ("accept", review.samples[0].suggested),
        1: ("reject", review.samples[1].given),
        2: ("correct", third),
    }


def test_correcting_to_the_given_or_suggested_label_is_rejecting_or_accepting(review: Review) -> None:
    review.decide(0, "correct", review.samples[0].given)
    review.decide(1, "correct", review.samples[1].suggested)
    assert [action for action, _ in labels(review).values()] == ["reject", "accept"]


def test_a_new_decision_replaces_the_old_one_and_undo_brings_it_back(review: Review) -> None:
    review.decide(0, "accept")
    review.decide(0, "reject")
    assert labels(review)[0] == ("reject", review.samples[0].given)
    review.undo()
    assert labels(review)[0] == ("accept", review.samples[0].suggested)


def test_undo_goes_back_over_clients_in_the_order_of_decisions(review: Review) -> None:
    for place in (0, 7, 1, 6):
        review.decide(place, "accept")
    assert review.last() == 6
    undone = [review.undo() for _ in range(5)]
    assert [step and step[0] for step in undone] == [6, 1, 7, 0, None]
    assert review.decided() == {}
    assert review.last() is None


def test_a_second_review_goes_on_where_the_first_stopped(folder: AuditFolder, review: Review) -> None:
    review.decide(0, "accept")
    again = Review(folder)
    assert labels(again) == labels(review)
    again.decide(1, "reject")  # and what one writes the other sees
    assert labels(review) == labels(again)
    undone = review.undo()
    assert undone is not None
    assert undone[0] == 1


def test_one_clients_review_leaves_the_others_alone(folder: AuditFolder, review: Review) -> None:
    review.decide(0, "accept")
    east = Review(folder, EAST)
    assert [sample.client for sample in east.samples] == [EAST, EAST]
    assert east.undo() is None
    east.decide(0, "accept")
    assert set(labels(review)) == {0, 6}


def test_unknown_clients_samples_actions_and_classes_are_refused(folder: AuditFolder, review: Review) -> None:
    with pytest.raises(AuditFolderError, match=r"there is no client 'nroth'. Did you mean 'north'\?"):
        Review(folder, "nroth")
    for place in (-1, 8, "0", None, True, 0.0, [0]):
        with pytest.raises(RequestError, match="There is no sample"):
            review.decide(place, "accept")
    for action in ("undo", "Accept", None, 1):
        with pytest.raises(RequestError, match="There is no action"):
            review.decide(0, action)
    for label in ("lynx", None, 0, [], {}):
        with pytest.raises(RequestError, match="There is no class"):
            review.decide(0, "correct", label)
    assert review.decided() == {}


def test_torn_lines_and_decisions_about_other_samples_are_told_and_kept(folder: AuditFolder, review: Review) -> None:
    journal = folder.client_folder(NORTH) / "decisions.jsonl"
    other = Decision("no longer suspicious", "accept", "cat", "2026").line()
    journal.write_bytes(other + b'{"id": "2", "act')
    again = Review(folder)
    assert again.n_unlisted() == 1
    assert [note.partition(": ")[2][:6] for note in again.torn()] == ["line 2"]
    assert again.undo() is None  # nobody sees that sample here, so nobody takes it back by mistake
    again.decide(0, "accept")
    assert journal.read_bytes().startswith(other)


def test_apply_writes_what_was_decided(folder: AuditFolder, review: Review) -> None:
    review.decide(0, "accept")
    review.decide(1, "reject")
    review.decide(7, "accept")
    review.decide(2, "accept")
    review.undo()
    done = apply_audit(folder, None)
    assert (done.n_changed, done.n_decided) == (2, 2)
