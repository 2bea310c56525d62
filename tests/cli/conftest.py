"""The command line as a user has it: in this process for the many small cases, as a command for the few whole ones."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsir.cli import main


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


Fedsir = Callable[..., Done]


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in an empty folder, with no data of this machine in sight."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSIR_DATA", str(tmp_path / "no-data"))


@pytest.fixture
def fedsir(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Fedsir:
    """Return a function that runs `fedsir WORDS` in this process."""

    def call(*words: Any) -> Done:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["fedsir", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Done(int(left.value.code or 0), out, err)

    return call


@pytest.fixture
def refused(fedsir: Fedsir) -> Callable[..., str]:
    """Return a function that runs `fedsir WORDS`, which must fail with one clear line, and returns that line."""

    def call(*words: Any) -> str:
        done = fedsir(*words)
        assert done.code == 2, done
        assert done.out == ""
        # A run may have got as far as its headline: the error is the line after it.
        *before, line = done.err.splitlines()
        assert line.startswith("fedsir: ")
        assert not [text for text in before if " on " not in text.split(":")[0] and not text.startswith("round ")]
        assert "Traceback" not in done.err
        return line

    return call


@pytest.fixture
def shell() -> Callable[..., Done]:
    """Return a function that runs `python -m fedsir WORDS` as a process of its own."""

    def call(*words: Any) -> Done:
        done = subprocess.run(
            [sys.executable, "-m", "fedsir", *map(str, words)],
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "COLUMNS": "200"},
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture
def npz(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a small federation of the user's own, with some arrays changed or dropped."""

    def write(**changes: Any) -> Path:
        rng = np.random.default_rng(0)
        labels = np.arange(60) % 3
        images = rng.integers(0, 256, (60, 8, 8), dtype=np.uint8)
        arrays = {"images": images, "labels": labels, "clients": np.array([f"site-{i % 4}" for i in range(60)])}
        kept = {name: array for name, array in (arrays | changes).items() if array is not None}
        np.savez(tmp_path / "own.npz", **kept)
        return tmp_path / "own.npz"

    return write
