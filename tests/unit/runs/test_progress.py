"""Progress: one line per round in a log, a table that gives the terminal back, and honest estimates."""

import contextlib
import io
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from fedsir.engines.federation import AskProgress
from fedsir.runs import progress
from fedsir.runs.progress import LiveTable, RoundLines

CONFIG: Any = SimpleNamespace(method=SimpleNamespace(name="fedsir"), rounds=10, seed=3)
DATA: Any = SimpleNamespace(name="digits", n_clients=4, given_labels=range(1234), notes=("a note [/b] " + "x" * 200,))
SHOW_CURSOR = "\x1b[?25h"
HIDE_CURSOR = "\x1b[?25l"


def metrics(t: int, **more: Any) -> dict[str, Any]:
    return {"round": t, "accuracy": 0.125, "loss": 2.5, "seconds": 1.25, "failures": {}, **more}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time progress sees, in the list's only entry."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def log() -> tuple[RoundLines, io.StringIO]:
    file = io.StringIO()
    return RoundLines(Console(file=file, width=60)), file


@pytest.fixture
def terminal() -> tuple[LiveTable, io.StringIO]:
    file = io.StringIO()
    return LiveTable(Console(file=file, force_terminal=True, width=120, height=40)), file


# ---------------------------------------------------------------- lines


def test_a_log_gets_one_line_per_round(log: tuple[RoundLines, io.StringIO], clock: list[float]) -> None:
    lines, file = log
    lines.started(CONFIG, DATA, [])
    for t in range(3):
        clock[0] += 2
        lines.round_done(metrics(t))
    lines.finished({"run_dir": "runs/x"}, is_new=True)
    headline, note, *rounds = file.getvalue().splitlines()
    assert headline == "fedsir on digits: 4 clients, 1,234 images, 10 rounds, seed 3"
    assert note == "note: " + DATA.notes[0]
    assert rounds == [
        "round 0  accuracy 12.5%  loss 2.500  seconds 1.2",
        "round 1  accuracy 12.5%  loss 2.500  seconds 1.2  eta 18 s",
        "round 2  accuracy 12.5%  loss 2.500  seconds 1.2  eta 16 s",
    ]


def test_a_log_names_who_was_left_out_and_why(log: tuple[RoundLines, io.StringIO]) -> None:
    lines, file = log
    lines.started(CONFIG, DATA, [])
    failures = {"[red]site": "ValueError: shape [/3, 4]", "b": "dropped out"}
    lines.round_done(metrics(1, failures=failures))
    assert file.getvalue().splitlines()[3:] == [
        "  client [red]site left out: ValueError: shape [/3, 4]",
        "  client b left out: dropped out",
    ]


def test_what_a_round_did_not_measure_is_not_printed(log: tuple[RoundLines, io.StringIO]) -> None:
    lines, file = log
    lines.started(CONFIG, DATA, [])
    lines.round_done({"round": 4, "failures": {}, "seconds": 0.0, "noise_after": None, "relabelled": 1200})
    assert file.getvalue().splitlines()[-1] == "round 4  relabelled 1,200  seconds 0.0"


def test_a_run_that_goes_on_says_from_where(log: tuple[RoundLines, io.StringIO]) -> None:
    lines, file = log
    lines.started(CONFIG, DATA, [metrics(0), metrics(1)])
    assert file.getvalue().splitlines()[0].endswith("seed 3, going on after round 1")


# ---------------------------------------------------------------- the table


def test_the_table_shows_the_last_rounds_and_the_time_left(
    terminal: tuple[LiveTable, io.StringIO], clock: list[float]
) -> None:
    table, file = terminal
    table.started(CONFIG, DATA, [metrics(0)])
    clock[0] += 60
    table.round_done(metrics(1, accuracy=0.777, failures={"[/x]": "dropped out"}))
    text = file.getvalue()
    assert "77.7%" in text
    assert "round 2 of 10; 9 min to go" in text
    assert "round 1: client [/x] left out: dropped out" in text
    table.close()


def test_the_table_gives_the_terminal_back_when_a_run_is_interrupted(
    terminal: tuple[LiveTable, io.StringIO],
) -> None:
    table, file = terminal

    def run() -> None:
        with contextlib.closing(table):
            table.started(CONFIG, DATA, [])
            assert file.getvalue().count(HIDE_CURSOR) == 1
            assert SHOW_CURSOR not in file.getvalue()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert file.getvalue().count(SHOW_CURSOR) == 1
    table.close()  # once more does no harm
    assert file.getvalue().count(SHOW_CURSOR) == 1


def test_the_table_stays_on_the_screen_at_the_end(terminal: tuple[LiveTable, io.StringIO]) -> None:
    table, file = terminal
    table.started(CONFIG, DATA, [])
    assert "round 0 of 10" in file.getvalue()  # before anybody has answered
    table.round_done(metrics(0))
    table.close()
    assert file.getvalue().count(HIDE_CURSOR) == file.getvalue().count(SHOW_CURSOR) == 1


def test_a_long_round_says_what_clients_do_and_how_many_have_done_it(
    log: tuple[RoundLines, io.StringIO], terminal: tuple[LiveTable, io.StringIO], clock: list[float]
) -> None:
    for show, file in (log, terminal):
        show.started(CONFIG, DATA, [])
        clock[0] += progress.SILENCE
        show.answered(AskProgress(round=0, task="identify", n_done=3, n_asked=1000))
        show.close()
        assert "round 0 of 10: looking for noisy clients, 3 of 1,000 clients" in file.getvalue()
        show.answered(AskProgress(round=0, task="my_task", n_done=4, n_asked=1000))
        assert "4 of 1,000" not in file.getvalue()  # too soon for another line


@pytest.mark.parametrize("kind", [RoundLines, LiveTable])
def test_a_finished_run_says_that_there_is_nothing_to_do(kind: type[RoundLines]) -> None:
    file = io.StringIO()
    show = kind(Console(file=file, width=60))
    show.finished({"run_dir": "runs/[x]"}, is_new=False)
    show.close()
    assert file.getvalue() == "finished earlier, nothing to do: runs/[x]\n"


# ---------------------------------------------------------------- clients left out


def test_many_clients_left_out_are_counted_by_reason() -> None:
    failures = {str(k): "dropped out" for k in range(1_200)} | {"x": "no answer", "y": "no answer"}
    assert progress._left_out(failures) == [
        "1,200 clients (0, 1, 2, …) left out: dropped out",
        "client x, y left out: no answer",
    ]


def test_many_reasons_are_cut_short() -> None:
    lines = progress._left_out({str(k): f"reason {k}" for k in range(30)})
    assert lines[0] == "client 0 left out: reason 0"
    assert len(lines) == progress.MOST_FAILURES + 1
    assert lines[-1] == "22 more clients left out for other reasons (metrics.jsonl has them)"
