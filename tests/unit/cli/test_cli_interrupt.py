"""How errors and Ctrl-C leave the command line."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fedsir.cli
from fedsir.cli import app
from fedsir.cli.run import execute
from fedsir.errors import DataError
from fedsir.runs import runner
from fedsir.runs.recipes import resolve


def leave(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fedsir", *words])
    with pytest.raises(SystemExit) as left:
        fedsir.cli.main()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_ctrl_c_during_a_run_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_experiment", interrupted)
    assert leave(monkeypatch, "run", "--out", str(tmp_path / "run")) == 130
    assert capsys.readouterr() == (
        "",
        f"fedsir: stopped; the same command goes on from the last round in {tmp_path / 'run'}.\n",
    )


def test_ctrl_c_while_the_command_line_loads_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Loading(ModuleType):
        @property
        def main(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "fedsir.cli.app", Loading("fedsir.cli.app"))
    assert leave(monkeypatch, "list", "methods") == 130
    assert capsys.readouterr() == ("", "fedsir: stopped.\n")


def test_an_error_is_one_line_whatever_a_path_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: Any) -> None:
        raise DataError("a\nb is gone")

    monkeypatch.setattr(app, "app", fail)
    assert leave(monkeypatch, "run") == 2
    assert capsys.readouterr() == ("", "fedsir: a b is gone\n")


def test_the_live_table_is_closed_however_a_run_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = []

    def fail(config: Any, target: runner.RunTarget) -> None:
        table: Any = target.progress
        close = table.close
        monkeypatch.setattr(table, "close", lambda: (closed.append(True), close()))
        raise DataError("no")

    monkeypatch.setattr(runner, "run_experiment", fail)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the stream for a terminal
    with pytest.raises(DataError):
        execute(resolve("digits"), out=tmp_path, workers=1)
    assert closed == [True]


def test_ctrl_c_that_typer_caught_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsir.runs.recipes.recipe_names", interrupted)
    assert leave(monkeypatch, "list", "recipes") == 130
    assert capsys.readouterr().err == "fedsir: stopped.\n"
