"""The page of a run: what it says, and what it says of runs that lack something."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsir.errors import RunFolderError
from fedsir.report.run_files import read_run
from fedsir.report.run_page import headline, run_page
from fedsir.report.run_pictures import spread_over_clients
from fedsir.runs.result import RunResult

RESULTS = Path(__file__).resolve().parents[3] / "results"
Copy = Callable[..., Path]


@pytest.fixture
def copy(made: RunResult, tmp_path: Path) -> Copy:
    """Return a function that copies the run without some files."""

    def make(*without: str) -> Path:
        target = tmp_path / "copy"
        shutil.copytree(made.folder, target)
        for name in without:
            (target / name).unlink()
        return target

    return make


def edit(path: Path, **changes: Any) -> None:
    stored = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(stored | changes), encoding="utf-8")


def sections(page: str) -> set[str]:
    return set(re.findall(r'<section id="(\w+)"', page))


def test_a_run_with_verdicts_and_corrections_has_every_section(made: RunResult) -> None:
    page = run_page(made.folder)
    wanted = {"clients", "judged", "accuracy", "labels", "weights", "traffic", "settings", "again", "limits"}
    assert sections(page) == wanted
    noisy, n_changed = len(made["noisy_clients"]), made["n_relabelled"]
    assert (
        headline(read_run(made.folder))
        == f"{noisy} of 3 clients look noisy; {n_changed}\u00a0of\u00a090 labels were changed"
    )
    assert "fedsir run sir/config.toml --out sir-again" in page
    assert made["model_sha256"][:16] in page
    assert page.count("<img ") == n_changed  # 90 samples: all that were changed fit


def test_noise_after_each_relabelling_is_stored_by_client(made: RunResult) -> None:
    lines = [line for line in made.metrics if line.get("has_relabelled")]
    assert lines
    assert all(line["noise_after_by_client"].keys() == lines[0]["noise_after_by_client"].keys() for line in lines)
    page = run_page(made.folder)
    client, rate = next(iter(lines[0]["noise_after_by_client"].items()))
    assert re.search(rf"client {client}: wrong labels [\d.\u202f%]+ → {100 * rate:.1f}\u202f%", page)


def test_a_run_without_verdicts_says_so(plain: RunResult) -> None:
    page = run_page(plain.folder)
    assert (
        f"fedavg on 3 clients reaches {100 * plain['accuracy']:.1f}\u202f%; it does not look for noisy clients" in page
    )
    assert sections(page) == {"clients", "accuracy", "traffic", "settings", "again", "limits"}


def test_an_unfinished_run_shows_what_there_is(copy: Copy) -> None:
    folder = copy("result.json", "labels.npz", "relabelling.json", "identification.json", "model.safetensors")
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[:2]) + lines[2][:40])
    page = run_page(folder)
    assert "This run is not finished: 1 of 3 rounds are done" in page
    assert "fedsir run copy/config.toml --out copy" in page
    assert {"accuracy", "traffic"} <= sections(page)


def test_committed_runs_without_models_have_pages() -> None:
    folders = [next(iter(sorted((RESULTS / name / "runs").iterdir()))) for name in ("digits", "cifar10-images")]
    for folder in folders:
        page = run_page(folder)
        assert "limits" in sections(page)
        assert "<img " not in page


@pytest.mark.parametrize(
    "missing", ["data.json", "labels.npz", "provenance.json", "identification.json", "metrics.jsonl"]
)
def test_a_missing_file_takes_its_section_with_it(missing: str, copy: Copy) -> None:
    assert {"settings", "again", "limits"} <= sections(run_page(copy(missing)))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("data.json", {"client_sizes": [1, 2]}),
        ("data.json", {"noise_by_client": "none"}),
        ("relabelling.json", {"by_client": {"0": {}}}),
        ("identification.json", {"split": {"clean": 3}}),
        ("result.json", {"accuracy": "high"}),
    ],
)
def test_a_damaged_file_is_named(name: str, changes: dict[str, Any], copy: Copy) -> None:
    folder = copy()
    edit(folder / name, **changes)
    with pytest.raises(RunFolderError, match=f"{name} is damaged"):
        run_page(folder)


def test_damaged_labels_are_named(copy: Copy) -> None:
    folder = copy()
    with np.load(folder / "labels.npz") as stored:
        arrays = dict(stored)
    np.savez(folder / "labels.npz", **(arrays | {"client": arrays["client"] + 70}))
    with pytest.raises(RunFolderError, match=r"labels\.npz is damaged"):
        run_page(folder)


def test_images_of_other_data_are_not_shown(copy: Copy) -> None:
    folder = copy()
    edit(folder / "data.json", sha256="0" * 64)
    page = run_page(folder)
    assert "the data have changed since the run" in page
    assert "<img " not in page


def test_images_that_are_not_found_say_why(copy: Copy, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = copy()
    config = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(config.replace('dataset = "digits"', 'dataset = "gone.npz"'))
    assert "because the data were not found again: unknown dataset &#39;gone.npz&#39;" in run_page(folder)
    assert "The page was made without images." in run_page(folder, images=False)


def test_similarities_are_those_of_stage_one(made: RunResult) -> None:
    page = run_page(made.folder, similarities=True)
    assert "similarities" in sections(page)
    assert made.split is not None
    means = [f"{made.split.statistics[client][0]:.2f}" for client in (*made.split.noisy, *made.split.clean)]
    assert re.findall(r'class="how small">(?:noisy|clean), mean ([\d.]+)', page) == means


def test_similarities_of_another_run_are_refused(copy: Copy, plain: RunResult) -> None:
    folder = copy()
    stored = json.loads((folder / "identification.json").read_text())
    for values in stored["split"]["statistics"].values():
        values[0] += 0.01
    (folder / "identification.json").write_text(json.dumps(stored))
    with pytest.raises(RunFolderError, match="had a mean similarity of"):
        run_page(folder, similarities=True)
    with pytest.raises(RunFolderError, match="has no Stage I"):
        run_page(plain.folder, similarities=True)


def test_pictures_come_from_all_clients_in_turn() -> None:
    samples, clients = np.arange(10), np.array([0] * 7 + [1, 1, 2])
    assert spread_over_clients(samples, clients, 6).tolist() == [0, 7, 9, 2, 8, 4]
    assert sorted(spread_over_clients(samples, clients, 100).tolist()) == samples.tolist()
