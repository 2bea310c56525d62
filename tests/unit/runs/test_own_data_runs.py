"""Runs on a user's own data: corrected labels lead back to samples, and changed data are noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedsir
from fedsir.errors import RunFolderError
from fedsir.runs.recipes import resolve
from fedsir.runs.result import RunResult
from fedsir.runs.runner import RunTarget, run_experiment


def write_npz(path: Path, change: int = 0) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, 8, 8), dtype=np.uint8)
    labels = np.arange(60) % 3
    labels[:3] = (labels[:3] + change) % 3
    np.savez(path, images=images, labels=labels, clients=np.array(["east", "west"] * 30))


def run(path: Path, out: Path) -> RunResult:
    return fedsir.run(method="fedavg", dataset=path, rounds=1, out=out)


def test_labels_lead_back_to_rows(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write_npz(path)
    run(path, tmp_path / "run")
    given = np.load(path)["labels"]
    with np.load(tmp_path / "run" / "labels.npz", allow_pickle=False) as labels:
        rows = labels["sample"].astype(int)
        assert len(rows) == 48  # a fifth is held out
        np.testing.assert_array_equal(labels["given"], given[rows])
        assert set(labels["client_names"][labels["client"]]) == {"east", "west"}
        assert labels["class_names"].tolist() == ["0", "1", "2"]


def test_a_finished_run_notices_changed_data(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write_npz(path)
    first = run(path, tmp_path / "run")
    assert run(path, tmp_path / "run") == first
    write_npz(path, change=1)
    with pytest.raises(RunFolderError, match="data have changed"):
        run(path, tmp_path / "run")


def test_a_run_on_a_relative_path_is_known_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    write_npz(tmp_path / "here" / "own.npz")
    words = {"rounds": 1, "method": {"name": "fedavg"}, "data": {"dataset": "own.npz"}}
    monkeypatch.chdir(tmp_path / "here")
    made = run_experiment(resolve(None, words), RunTarget(Path("run")))
    stored = Path("run/config.toml")
    assert resolve(str(stored)).sha256 == resolve(None, words).sha256
    # Folders from before paths were stored whole: the same command still knows them.
    stored.write_text(stored.read_text().replace(str(tmp_path / "here" / "own.npz"), "own.npz"))
    assert run_experiment(resolve(None, words), RunTarget(Path("run")))["model_sha256"] == made["model_sha256"]
    stored.write_text(resolve(None, words).to_toml())
    monkeypatch.chdir(tmp_path)
    elsewhere = resolve("here/run/config.toml")
    assert run_experiment(elsewhere, RunTarget(Path("here/run")))["model_sha256"] == made["model_sha256"]
