"""`fedsir audit apply` and `export`: new files only, decisions before thresholds, and a way back."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import fedsir
from fedsir.auditing.apply import apply_audit
from fedsir.auditing.condition import parse_condition
from fedsir.auditing.decisions import Journal
from fedsir.auditing.export import export_audit
from fedsir.auditing.folder import AuditFolder, AuditFolderError

SURE = parse_condition("score<0.2")


@pytest.fixture
def folder(sites: Callable[..., Any], tmp_path: Path) -> AuditFolder:
    data = sites(n_sites=4)
    return AuditFolder(fedsir.audit(data.features, data.given, data.clients).save(tmp_path / "audit"))


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_threshold_takes_suggestions_and_leaves_a_way_back(
    folder: AuditFolder, contents: Callable[[Path], dict[str, bytes]]
) -> None:
    before = contents(folder.path)
    done = apply_audit(folder, SURE)
    after = contents(folder.path)
    assert before == {name: after[name] for name in before}, "nothing that was there has changed"
    assert {Path(name).name for name in after.keys() - before.keys()} == {"labels.csv", "undo.csv"}
    home = folder.client_folder("site 1")
    labels, undo = rows_of(home / "labels.csv"), rows_of(home / "undo.csv")
    samples = list(folder.samples("site 1").rows())
    taken = {row["id"]: row for row in samples if row["is_label_issue"] and row["score"] < 0.2}
    assert len(labels) == 60 and len(undo) == len(taken) > 10
    assert [int(row["id"]) for row in labels] == list(range(60, 120)), "in the order of the data"
    for row in labels:
        expected = taken[row["id"]]["suggested_label"] if row["id"] in taken else row["given_label"]
        assert row["label"] == expected and row["changed_by"] == ("threshold" if row["id"] in taken else "")
    back = {row["id"]: row["label"] for row in undo}
    assert [back.get(row["id"], row["label"]) for row in labels] == [row["given_label"] for row in labels]
    assert (done.n_samples, done.n_decided) == (240, 0) and done.n_changed == done.n_accepted


def test_decisions_count_before_the_threshold(folder: AuditFolder) -> None:
    worst = list(folder.samples("site 1").rows())[:3]
    journal = Journal(folder.client_folder("site 1") / "decisions.jsonl")
    journal.append(worst[0]["id"], "reject", worst[0]["given_label"])
    journal.append(worst[1]["id"], "correct", "gnu")
    done = apply_audit(folder, SURE, ["site 1"])
    labels = {row["id"]: row for row in rows_of(folder.client_folder("site 1") / "labels.csv")}
    assert labels[worst[0]["id"]]["label"] == worst[0]["given_label"]
    assert labels[worst[1]["id"]]["label"] == "gnu"
    assert labels[worst[2]["id"]]["label"] == worst[2]["suggested_label"]
    assert done.n_samples == 60 and len(done.files) == 2
    alone = apply_audit(folder, None, ["site 1"])
    assert alone.n_accepted == 0 and alone.n_changed <= 1
    n_issues = int(folder.samples("site 1")["is_label_issue"].sum())
    assert alone.n_open == n_issues - 2 and done.n_open < alone.n_open


def test_nothing_is_overwritten(folder: AuditFolder, tmp_path: Path) -> None:
    first, second = apply_audit(folder, SURE, ["site 1"]), apply_audit(folder, SURE, ["site 1"])
    assert [path.name for path in first.files + second.files] == [
        "labels.csv",
        "undo.csv",
        "labels-2.csv",
        "undo-2.csv",
    ]
    out = tmp_path / "all.csv"
    assert [path.name for path in apply_audit(folder, SURE, out=out).files] == ["all.csv", "all.undo.csv"]
    assert {row["client"] for row in rows_of(out)} == set(folder.client_names)
    with pytest.raises(AuditFolderError, match="nothing is overwritten"):
        apply_audit(folder, SURE, out=out)


def test_features_cannot_become_a_folder_of_images(folder: AuditFolder, tmp_path: Path) -> None:
    with pytest.raises(AuditFolderError, match="a folder of images was not audited"):
        apply_audit(folder, SURE, images=tmp_path / "new")


def test_without_decisions_and_threshold_it_says_what_to_do(folder: AuditFolder) -> None:
    with pytest.raises(AuditFolderError, match=r"nobody has decided anything yet.*--accept 'score<0.2'"):
        apply_audit(folder, None)
    with pytest.raises(AuditFolderError, match="no client 'site'"):
        apply_audit(folder, SURE, ["site"])


def test_a_torn_line_and_an_unknown_sample_are_said(folder: AuditFolder) -> None:
    path = folder.client_folder("site 1") / "decisions.jsonl"
    Journal(path).append("no such sample", "correct", "gnu")
    with path.open("ab") as file:
        file.write(b'{"id": "6')
    notes = apply_audit(folder, None, ["site 1"]).notes
    assert len(notes) == 2 and "line 2" in notes[0] and "1 decision is about samples" in notes[1]


def test_label_studio_gets_tasks_with_predictions(folder: AuditFolder) -> None:
    files = export_audit(folder, "label-studio", ["site 1"])
    assert [path.name for path in files] == ["label-studio.json", "label-studio.xml"]
    tasks = json.loads(files[0].read_bytes())
    worst = next(iter(folder.samples("site 1").rows()))
    assert len(tasks) == 60 and tasks[0]["data"]["id"] == worst["id"] and tasks[0]["data"]["image"] == worst["id"]
    prediction = tasks[0]["predictions"][0]
    assert prediction["result"][0]["value"] == {"choices": [worst["suggested_label"]]}
    assert prediction["score"] == pytest.approx(worst["suggested_probability"])
    choices = ElementTree.parse(files[1]).getroot().iter("Choice")
    assert [choice.get("value") for choice in choices] == folder.class_names


def test_cleanlab_gets_its_columns_in_the_order_of_the_data(folder: AuditFolder, tmp_path: Path) -> None:
    files = export_audit(folder, "cleanlab", out=tmp_path / "issues.csv")
    rows = rows_of(files[0])
    assert list(rows[0])[3:] == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert [int(row["id"]) for row in rows] == list(range(240))
    with pytest.raises(AuditFolderError, match="nothing is overwritten"):
        export_audit(folder, "cleanlab", out=tmp_path / "issues.csv")
