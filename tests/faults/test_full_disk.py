"""A disk that fills up: what was there stays, and the run goes on once there is space again."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fedsir.cli import main
from fedsir.errors import FedsirError, RunFolderError
from fedsir.runs.config import RunConfig
from fedsir.runs.progress import Silent
from fedsir.runs.runner import RunTarget, run_experiment

resource = pytest.importorskip("resource", reason="needs POSIX limits")

Settings = Callable[..., RunConfig]
FEDAVG = {"rounds": 3, "name": "fedavg"}
LIMIT = 50_000  # bytes a file may have: enough for everything but a checkpoint


@contextmanager
def file_size_limit(n_bytes: int) -> Iterator[None]:
    """Let the system refuse to make any file larger, as it refuses when a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class FillAfter(Silent):
    """Progress that makes the disk full after round t."""

    def __init__(self, t: int) -> None:
        self.t = t

    def round_done(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] == self.t:
            _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))


def test_a_full_disk_keeps_the_last_checkpoint_and_the_run_goes_on(tmp_path: Path, tiny: Settings) -> None:
    config, out = tiny(**FEDAVG), tmp_path / "run"
    with (
        file_size_limit(resource.getrlimit(resource.RLIMIT_FSIZE)[0]),
        pytest.raises(RunFolderError, match=r"checkpoint-000002-\w+\.safetensors: File too large.*goes on"),
    ):
        run_experiment(config, RunTarget(out, progress=FillAfter(1)))
    [kept] = out.glob("checkpoint-*")
    assert kept.name.startswith("checkpoint-000001-")
    assert not list(out.glob(".*.part"))

    with file_size_limit(LIMIT), pytest.raises(RunFolderError, match="checkpoint-000002"):
        run_experiment(config, RunTarget(out))  # still full: the same again
    assert [path.name for path in out.glob("checkpoint-*")] == [kept.name]

    result = run_experiment(config, RunTarget(out))
    straight = run_experiment(config, RunTarget(tmp_path / "straight"))
    assert result["model_sha256"] == straight["model_sha256"]
    assert result["bytes_up"] == straight["bytes_up"]


def test_a_full_disk_is_one_line_on_the_command_line(
    tmp_path: Path, tiny: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "tiny.toml"
    recipe.write_text(tiny(**FEDAVG).to_toml())
    words = ["fedsir", "run", str(recipe), "--out", str(tmp_path / "run"), "--workers", "1"]
    monkeypatch.setattr("sys.argv", words)
    with file_size_limit(LIMIT), pytest.raises(SystemExit) as left:
        main()
    out, err = capsys.readouterr()
    assert (left.value.code, out) == (2, "")
    headline, error = err.splitlines()
    assert headline.startswith("fedavg on digits")
    assert error.startswith(f"fedsir: Could not write {tmp_path / 'run'}{os.sep}checkpoint-000000-")


def test_a_disk_too_full_for_the_workers_data_is_said(tmp_path: Path, tiny: Settings) -> None:
    with file_size_limit(3000), pytest.raises(FedsirError, match="File too large"):
        run_experiment(tiny(**FEDAVG), RunTarget(tmp_path / "run", workers=2))
