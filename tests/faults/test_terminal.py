"""What a person sees on a real terminal: the command runs on a pseudo-terminal, and Ctrl-C is typed into it."""

import os
import pty
import re
import select
import signal
import sys
import time
from pathlib import Path

import pytest

TINY = ["--rounds", "2", "--workers", "1", "--set", "data.n_train=200", "--set", "data.n_clients=4"]
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal(words: list[str], *, term: str = "xterm", stop_at: str | None = None) -> tuple[int, str]:
    """Run `fedsir WORDS` on a terminal, type Ctrl-C once it shows `stop_at`; return exit code and what came out."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM=term, COLUMNS="120", LINES="40")
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # which is ignored in what a shell starts in the background
        os.execv(sys.executable, [sys.executable, "-m", "fedsir", *words])
    shown, deadline, is_stopped = "", time.monotonic() + 100, False
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            content = os.read(terminal, 65536)
        except OSError:  # how Linux says that nobody has the other end any more
            break
        shown += content.decode(errors="replace")
        if stop_at is not None and stop_at in shown and not is_stopped:
            os.write(terminal, b"\x03")
            is_stopped = True
    else:
        os.kill(pid, 9)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def lines_after_the_table(shown: str) -> list[str]:
    return CONTROL.sub("", shown.rpartition("\x1b[?25h")[2]).splitlines()


def test_a_run_on_a_terminal_from_stage_one_to_its_labels(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code, shown = on_terminal(["run", *TINY, "--set", "method.relabel.every=1", "--out", str(out)])
    assert code == 0
    assert re.search(r"round 0 of 2: looking for noisy clients, \d of 4 clients", shown)
    last_drawn = CONTROL.sub("", shown.rpartition("\x1b[?25h")[0].rpartition("\x1b[1A\x1b[2K")[2])
    assert re.search(r"\n +1 +[\d.]+%.*\r\n +2 +[\d.]+%.*\r\n2 rounds done", last_drawn), "the table stays"
    n_changed = len((out / "labels.csv").read_text().splitlines()) - 1
    assert f"fedsir changed {n_changed:,} labels; they are in {out / 'labels.csv'}" in lines_after_the_table(shown)
    code, again = on_terminal(["run", *TINY, "--set", "method.relabel.every=1", "--out", str(out)])
    assert (code, again.splitlines()[0]) == (0, f"finished earlier, nothing to do: {out}")


@pytest.mark.parametrize("moment", ["looking for noisy clients", " of 2000; "])
def test_ctrl_c_is_answered_below_the_table(tmp_path: Path, moment: str) -> None:
    code, shown = on_terminal(["run", *TINY, "--rounds", "2000", "--out", str(tmp_path / "run")], stop_at=moment)
    assert code == 130
    assert lines_after_the_table(shown) == [
        f"fedsir: stopped; the same command goes on from the last round in {tmp_path / 'run'}."
    ]


def test_a_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    code, shown = on_terminal(["run", *TINY, "--out", str(tmp_path / "run")], term="dumb")
    assert code == 0
    assert "\x1b" not in shown
    assert [line.split()[1] for line in shown.splitlines() if line.startswith("round ")] == ["0", "1", "2"]


def test_ctrl_c_counts_while_workers_are_still_starting(tmp_path: Path) -> None:
    words = ["run", *TINY, "--workers", "2", "--rounds", "2000", "--out", str(tmp_path / "run")]
    code, shown = on_terminal(words, stop_at="seed 0")  # the first line; then the workers load torch
    assert code == 130
    assert "Traceback" not in shown
    assert "fedsir: stopped; the same command goes on" in shown
