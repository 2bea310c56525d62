"""`fedsir.write_report` and `.report()`: a page of whatever fedsir has returned."""

from pathlib import Path

import numpy as np
import pytest

import fedsir

TINY = {"data.n_train": 60, "data.n_test": 20, "data.n_clients": 3, "method.epochs": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[fedsir.RunResult]:
    home = tmp_path_factory.mktemp("runs")
    return [fedsir.run(method="fedavg", rounds=1, seed=s, settings=TINY, out=home / str(s)) for s in (0, 1)]


@pytest.fixture(scope="module")
def audited() -> fedsir.AuditResult:
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 300)
    return fedsir.audit(np.eye(3)[labels] * 9 + random.normal(size=(300, 3)), labels, np.arange(300) % 3)


def test_a_run_has_a_page_in_its_folder_or_where_it_is_wanted(runs: list[fedsir.RunResult], tmp_path: Path) -> None:
    assert runs[0].report() == runs[0].folder / "report.html"
    page = runs[0].report(tmp_path / "mine.html", images=False)
    assert "fedavg" in page.read_text(encoding="utf-8").lower()
    assert fedsir.write_report(runs[0].folder) == runs[0].folder / "report.html"


def test_results_and_folders_of_runs_go_side_by_side(runs: list[fedsir.RunResult], tmp_path: Path) -> None:
    page = fedsir.write_report([runs[0], str(runs[1].folder)], tmp_path / "both.html")
    assert page == tmp_path / "both.html" and "<html" in page.read_text(encoding="utf-8")


def test_an_audit_has_a_page_as_result_and_as_folder(
    audited: fedsir.AuditResult, runs: list[fedsir.RunResult], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fedsir.write_report(audited) == Path("report.html") and Path("report.html").is_file()
    folder = audited.save(tmp_path / "audit")
    assert fedsir.write_report(folder) == folder / "report.html"
    copy = fedsir.write_report([folder], "copy.html")
    assert copy.read_bytes() == (folder / "report.html").read_bytes()
    for mixed in ([audited, runs[0]], [runs[0], folder]):
        with pytest.raises(fedsir.FedsirError, match="name it alone"):
            fedsir.write_report(mixed)
