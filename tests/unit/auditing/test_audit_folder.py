"""The audit's folder: every file of it, what may be shared, whose it is, and what a second audit leaves alone."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsir
from fedsir.auditing.folder import MARK, AuditFolder, AuditFolderError, folder_names
from fedsir.auditing.result import AuditResult
from fedsir.auditing.sharing import HIDDEN, shared_clients, shared_confusion, shared_summary, shown
from fedsir.auditing.table import Table

Make = Callable[..., Any]
ODD = "../<b>'\"=1+1 ü%00"


@pytest.fixture
def result(sites: Make) -> AuditResult:
    data = sites(n_sites=4)
    names = np.where(data.clients == "site 1", ODD, data.clients)
    return fedsir.audit(data.features, data.given, names)


def test_every_file_is_there_and_says_the_same(result: AuditResult, tmp_path: Path) -> None:
    out = result.save(tmp_path / "audit")
    folder = AuditFolder(out)
    assert folder.client_names == result.clients["client"].tolist()
    assert folder.audit["features"] == {"name": "given", "dimension": 16}
    assert folder.audit["data"] == {"path": None, "kind": "features"}
    assert folder.class_names == list(result.class_names)
    rows = folder.clients()
    assert [row["verdict"] for row in rows] == result.clients["verdict"].tolist()
    assert float(rows[0]["noise_rate"]) == pytest.approx(result.clients["noise_rate"][0], abs=1e-4)
    assert folder.summary["headline"] == result.headline and folder.summary["noisy"] == 1
    for client in folder.client_names:
        samples, expected = folder.samples(client), result.of_client(client)
        assert samples["id"].tolist() == expected["id"].tolist()
        np.testing.assert_allclose(samples["score"], expected["score"])
        with (folder.client_folder(client) / "samples.csv").open(encoding="utf-8", newline="") as file:
            listed = list(csv.DictReader(file))
        assert [row["id"] for row in listed] == samples["id"].tolist()
        assert [row["is_label_issue"] for row in listed] == [str(flag) for flag in samples["is_label_issue"].tolist()]
        assert (folder.client_folder(client) / "report.html").is_file()
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "site 2" in page and "<b>'" not in page
    assert all(sample not in page for sample in ("samples.csv</td>", "id 17"))


def test_odd_names_stay_inside_the_folder(result: AuditResult, tmp_path: Path) -> None:
    out = result.save(tmp_path / "audit")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["audit"]
    assert AuditFolder(out).client_folder(ODD).parent == out / "clients"
    names = folder_names([".", "..", "a/b", "A", "a", "x" * 300, "ü" * 100, "con trol"])
    assert len({name.lower() for name in names.values()}) == 8
    assert not any(name.startswith(".") or "/" in name or len(name.encode()) > 200 for name in names.values())


def test_a_second_audit_writes_anew_and_leaves_decisions(result: AuditResult, tmp_path: Path, sites: Make) -> None:
    out = result.save(tmp_path / "audit")
    home = AuditFolder(out).client_folder("site 2")
    (home / "decisions.jsonl").write_text('{"id": "1"}\n', encoding="utf-8")
    data = sites(n_sites=3)
    assert fedsir.audit(data.features, data.given, data.clients).save(out) == out
    assert (home / "decisions.jsonl").read_text(encoding="utf-8") == '{"id": "1"}\n'
    assert len(AuditFolder(out).client_names) == 3
    left = {path.name for path in (out / "clients").iterdir()}
    assert left == {"site%200", "site%201", "site%202"}, "a client that is gone leaves nothing"


def test_it_refuses_what_is_not_its_own(result: AuditResult, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it", encoding="utf-8")
    with pytest.raises(AuditFolderError, match=r"not empty and no audit's \(it holds 'thesis.txt'\)"):
        result.save(tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]
    with pytest.raises(AuditFolderError, match="is a file"):
        result.save(tmp_path / "mine" / "thesis.txt")
    with pytest.raises(fedsir.FedsirError, match="min_cell: must be at least 1"):
        result.save(tmp_path / "new", min_cell=0)


def test_a_cut_off_audit_is_no_audit_but_can_be_repeated(
    result: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedsir.auditing import folder_writer

    out = result.save(tmp_path / "audit")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(folder_writer, "_parquet", full)
        with pytest.raises(AuditFolderError, match="No space left"):
            result.save(out)
    with pytest.raises(AuditFolderError, match="cut short: run it again"):
        AuditFolder(out)
    assert (out / MARK).exists() and not list(out.rglob(".*.part"))
    assert AuditFolder(result.save(out)).summary["clients"] == 4


def test_damaged_folders_are_named(result: AuditResult, tmp_path: Path) -> None:
    with pytest.raises(AuditFolderError, match="not the folder of an audit"):
        AuditFolder(tmp_path)
    out = result.save(tmp_path / "audit")
    with pytest.raises(AuditFolderError, match=r"no client 'site 22'. Did you mean 'site 2'"):
        AuditFolder(out).samples("site 22")
    (AuditFolder(out).client_folder("site 2") / "samples.parquet").write_bytes(b"PAR1")
    with pytest.raises(AuditFolderError, match=r"samples.parquet cannot be read"):
        AuditFolder(out).samples("site 2")
    about = json.loads((out / "audit.json").read_bytes())
    (out / "audit.json").write_text(json.dumps(about | {"folders": {"x": "../../etc"}}), encoding="utf-8")
    with pytest.raises(AuditFolderError, match=r"audit.json is damaged"):
        AuditFolder(out)
    (out / "audit.json").write_text("[]", encoding="utf-8")
    with pytest.raises(AuditFolderError, match=r"audit.json is damaged"):
        AuditFolder(out)


# ---------------------------------------------------------------- what may be shared


def counted(cells: dict[tuple[str, str, str], int]) -> AuditResult:
    """Return an audit with these counts: (client, given, suggested) → count."""
    clients = list(dict.fromkeys(client for client, _, _ in cells))
    sums = np.array([sum(n for (owner, _, _), n in cells.items() if owner == client) for client in clients])
    n = len(clients)
    table = {"client": clients, "samples": np.full(n, 100), "classes": np.full(n, 3), "verdict": ["clean"] * n}
    table |= {"reason": [""] * n, "evidence": ["100 judged"] * n, "suspicious": sums}
    rates = ("noise_rate", "noise_rate_low", "noise_rate_high", "probability_noisy")
    table |= {name: np.full(n, 0.1) for name in rates}
    columns = {name: [key[i] for key in cells] for i, name in enumerate(("client", "given", "suggested"))}
    confusion = Table(columns | {"count": np.array(list(cells.values()))})
    samples = Table({"id": np.arange(100 * n)})
    return AuditResult(Table(table), samples, confusion, ("a", "b", "c"), 4)


def test_small_counts_are_hidden_and_zero_is_zero() -> None:
    assert [shown(n, 5) for n in (0, 1, 4, 5, 17)] == [0, "<5", "<5", 5, 17]
    found = counted({("x", "a", "b"): 3, ("y", "a", "b"): 9})
    assert [row["suspicious"] for row in shared_clients(found, 5)] == ["<5", 9]
    summary = shared_summary(found, 5)
    assert summary["suspicious"] == 9 and summary["suspicious_hidden"], "12 - 9 would tell"
    assert summary["headline"].endswith("9 of 200 labels are suspect")


def test_a_hidden_count_cannot_be_computed_from_the_total() -> None:
    cells = {("x", "a", "b"): 20, ("x", "a", "c"): 8, ("x", "b", "a"): 2}
    counts = [row["count"] for row in shared_confusion(counted(cells), 5)]
    assert counts == [20, HIDDEN, "<5"]
    cells = {("x", "a", "b"): 20, ("x", "a", "c"): 4, ("x", "b", "a"): 4}
    assert [row["count"] for row in shared_confusion(counted(cells), 5)] == [20, "<5", "<5"]
    assert [row["count"] for row in shared_confusion(counted({("x", "a", "b"): 20}), 5)] == [20]
    assert [row["count"] for row in shared_confusion(counted({("x", "a", "b"): 3}), 5)] == ["<5"]
