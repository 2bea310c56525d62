"""`fedsir audit` as a person types it: the answer in words, what comes next, JSON, and refusals of one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedsir.cli import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Return a function that runs a command: exit code, output, errors."""

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fedsir", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        printed = capsys.readouterr()
        return int(left.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return an npz file with features of four sites, the third with wrong labels."""
    random = np.random.default_rng(0)
    true = random.integers(0, 3, 240)
    sites = np.repeat(["north", "east", "south", "west"], 60)
    features = random.normal(size=(3, 8))[true] * 4 + random.normal(size=(240, 8))
    is_wrong = (sites == "south") & (random.random(240) < 0.4)
    np.savez(tmp_path / "f.npz", features=features, labels=np.where(is_wrong, (true + 1) % 3, true), clients=sites)
    return tmp_path / "f.npz"


def test_it_ends_with_the_answer_and_what_comes_next(call: Call, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "my audit"
    code, printed, errors = call("audit", data, "-o", out)
    assert (code, errors) == (0, "")
    lines = printed.splitlines()
    assert lines[1].split()[:3] == ["south", "60", "noisy"]
    assert "1 of 4 clients looks noisy (south); " in printed and "report.html" in printed
    next_ones = [line.split("   #")[0].strip() for line in lines[-3:]]
    assert [line.split()[:3] for line in next_ones] == [
        ["fedsir", "audit", word] for word in ("review", "apply", "export")
    ]
    assert all(f"'{out}'" in line for line in next_ones), "they can be pasted"
    code, printed, _ = call("audit", "apply", out, "--accept", "score<0.2")
    assert code == 0 and "Your data are as they were" in printed
    code, printed, _ = call("audit", "export", out, "--format", "cleanlab", "--json")
    assert code == 0 and len(json.loads(printed)["files"]) == 4
    assert call("audit", data, "-o", out)[0] == 0, "the same again"


def test_json_has_every_client(call: Call, data: Path, tmp_path: Path) -> None:
    code, printed, _ = call("audit", "--json", "-o", tmp_path / "audit", data)
    found = json.loads(printed.splitlines()[-1])
    assert code == 0 and found["clients"][0]["client"] == "south" and found["suspicious"] > 10
    assert found["audit"] == str(tmp_path / "audit") and found["features"] == {"name": "given", "dimension": 8}
    code, printed, _ = call(
        "audit", "apply", tmp_path / "audit", "--accept", "score<0.2", "--client", "south", "--json"
    )
    done = json.loads(printed)
    assert done["changed"] == done["by_threshold"] > 10 and len(done["files"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["audit", "nowhere", "-o", "x"], "there is no file or folder nowhere"),
        (["audit", "f.npz"], "Missing option '--out'.*See `fedsir audit --help`"),
        (["audit", "f.npz", "-o", "x", "--min-cell", "0"], "min_cell: must be at least 1"),
        (["audit", "f.npz", "-o", "f.npz"], "is a file"),
        (["audit", "f.npz", "-o", "x", "--outt", "y"], "No such option"),
        (["audit", "apply", "nowhere"], "not the folder of an audit"),
        (["audit", "apply", ".", "--accept", "score"], "not a condition"),
        (["audit", "export", ".", "--format", "excel"], "excel"),
        (["audit", "./apply", "-o", "x"], "there is no file or folder apply"),
    ],
)
def test_refusals_are_one_line(
    call: Call, data: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(data.parent)
    code, printed, errors = call(*words)
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    import re

    assert re.search(message, errors), errors


def test_help_shows_options_and_commands(call: Call) -> None:
    code, printed, _ = call("audit", "--help")
    assert code == 0 and "Usage: fedsir audit DATA -o DIR [OPTIONS] | COMMAND" in printed
    for word in ("--max-corrupt", "--min-cell", "--features", "apply", "export"):
        assert word in printed
    assert call("audit")[1] == printed or "Usage: fedsir audit" in call("audit")[2]
