"""`fedsir report`: which page is made, where it is written, and what is refused."""

import json
import shutil
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedsir as package

Fedsir = Callable[..., Any]
TINY = {"data.n_train": 60, "data.n_test": 20, "data.n_clients": 3, "method.epochs": 1}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two finished runs and one that has only begun."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (0, 1):
        package.run(method="fedavg", rounds=1, seed=seed, settings=TINY, out=folder / f"seed {seed}")
    shutil.copytree(folder / "seed 1", folder / "begun")
    (folder / "begun" / "result.json").unlink()
    return folder


def test_a_run_has_its_page_in_its_folder(fedsir: Fedsir, runs: Path) -> None:
    done = fedsir("report", runs / "seed 0")
    assert done.code == 0
    page = runs / "seed 0" / "report.html"
    assert done.out == f"{page}\n"
    assert "fedavg on 3 clients reaches" in page.read_text(encoding="utf-8")
    assert [path.name for path in page.parent.glob(".*.part")] == []


def test_runs_have_a_page_together(fedsir: Fedsir, runs: Path) -> None:
    done = fedsir("report", runs / "seed 0", runs / "seed 1", "--json")
    assert json.loads(done.out) == {"kind": "comparison", "file": "fedsir-report.html", "left_out": []}
    assert "comparison of 2 runs" in Path("fedsir-report.html").read_text(encoding="utf-8")


def test_a_folder_of_runs_leaves_out_what_is_not_finished(fedsir: Fedsir, runs: Path) -> None:
    done = fedsir("report", runs, "-o", "all.html")
    assert done.out == "all.html\n"
    assert done.err == f"fedsir: left out, not finished: {runs / 'begun'}\n"
    done = fedsir("report", runs / "begun", runs / "seed 0", "-o", "all.html")
    assert done.err == f"fedsir: left out, not finished: {runs / 'begun'}\n"


def test_an_unfinished_run_alone_has_a_page(fedsir: Fedsir, runs: Path) -> None:
    assert fedsir("report", runs / "begun", "-o", "begun.html").code == 0
    assert "This run is not finished" in Path("begun.html").read_text(encoding="utf-8")


def test_the_page_is_opened(fedsir: Fedsir, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) is None)
    assert fedsir("report", runs / "seed 0", "--no-images", "-o", "a b.html", "--open").code == 0
    assert opened == [Path("a b.html").resolve().as_uri()]


def test_an_audit_has_its_own_page(fedsir: Fedsir, refused: Callable[..., str], runs: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.arange(240) % 3
    features = np.eye(8)[labels] * 4 + random.standard_normal((240, 8))
    package.audit(features, labels, np.arange(240) // 60).save("found")
    done = fedsir("report", "found", "--json")
    assert json.loads(done.out) == {"kind": "audit", "file": "found/report.html", "left_out": []}
    assert fedsir("report", "found", "-o", "copy.html").out == "copy.html\n"
    assert Path("copy.html").read_bytes() == Path("found/report.html").read_bytes()
    assert "is an audit, which has a page of its own" in refused("report", "found", runs / "seed 0")
    Path("found/report.html").unlink()
    assert "found/report.html is missing or damaged" in refused("report", "found")


def test_what_is_no_run_is_refused(refused: Callable[..., str], runs: Path) -> None:
    Path("empty").mkdir()
    Path("file").touch()
    assert "There is no folder nowhere" in refused("report", "nowhere")
    assert "empty holds neither a run" in refused("report", "empty")
    assert "file is a file: name a folder" in refused("report", "file")
    assert "None of the 2 runs is finished" in refused("report", runs / "begun", runs / "begun")
    assert "There is no folder nowhere to write x.html into" in refused("report", runs, "-o", "nowhere/x.html")
    assert "empty is a folder: -o must name a file" in refused("report", runs, "-o", "empty")
    assert "are the same run twice" in refused("report", runs / "seed 0", runs / "seed 0")
    assert "--only seed=7: no run is left" in refused("report", runs, "--only", "seed=7")
    shutil.copytree(runs / "seed 1", "damaged")
    Path("damaged/data.json").write_text("{}")
    assert "damaged/data.json is damaged" in refused("report", "damaged")
