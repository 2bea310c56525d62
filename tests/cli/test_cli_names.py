"""Names are data: what a client, a class, a file or a foreign run folder is called never steers the terminal."""

import json
import os
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedsir.cli.app import app

Fedsir = Callable[..., Any]
EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
SHOWN = r"\u001b]0;owned\u0007\u001b[2J\u202e\u009b31m"
RUN = ["run", "--method", "fedsir", "--rounds", "1", "--workers", "1"]


def is_harmless(text: str) -> bool:
    return not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in text.replace("\n", ""))


@pytest.mark.parametrize("array", ["clients", "labels"])
def test_control_characters_in_own_names_are_refused(
    refused: Callable[..., str], npz: Callable[..., Path], array: str
) -> None:
    line = refused("plan", "--dataset", npz(**{array: [f"{EVIL}{i % 3}" for i in range(60)]}))
    assert is_harmless(line) and "owned" in line


@pytest.mark.parametrize("more", [(), ("--json",)], ids=["text", "json"])
def test_names_that_turn_text_around_are_shown_as_escapes(
    fedsir: Fedsir, npz: Callable[..., Path], more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    clients = [f"\u202egnp{i % 4}" for i in range(60)]
    path = npz(clients=clients, labels=[f"\u2066class{i % 3}" for i in range(60)])
    for words in (["plan", "--workers", "1"], [*RUN, "--set", "method.identify.split=always", "--out", f"run{EVIL}"]):
        done = fedsir(*words, "--dataset", path, *more)
        assert done.code == 0, done.err
        assert is_harmless(done.out) and is_harmless(done.err)
        assert r"\u202egnp0" in done.out
    assert SHOWN in done.out  # the folder
    if more:
        result = json.loads(done.out.splitlines()[-1])
        judged = [*result["clean_clients"], *result["noisy_clients"], *result["not_assessed"]]
        assert sorted(judged) == sorted(set(clients))


def test_a_foreign_run_folder(fedsir: Fedsir, refused: Callable[..., str], npz: Callable[..., Path]) -> None:
    path = npz()
    for seed in ("0", "1"):
        done = fedsir(*RUN, "--dataset", path, "--seed", seed, "--out", f"runs/{seed}")
        assert done.code == 0, done.err
    result = json.loads(Path("runs/0/result.json").read_text())
    changed = {
        "method": f"{EVIL}|best",
        "clean_clients": [EVIL],
        "noisy_clients": [f"{EVIL}2"],
        "not_assessed": {EVIL: EVIL},
    }
    Path("runs/0/result.json").write_text(json.dumps(result | changed))
    config = Path("runs/0/config.toml")
    config.write_text(config.read_text().replace("epochs = ", 'note = "\\u001b[2J\\u202e"\nepochs = ', 1))
    for words in ([], ["--json"], ["--markdown"], ["--latex"]):
        done = fedsir("compare", "runs/0", "runs/1", *words)
        assert done.code == 0, done.err
        assert is_harmless(done.out) and is_harmless(done.err)
        assert r"\u001b" in done.out or words == ["--latex"]
    Path(f"odd {EVIL}").mkdir()
    for words in (
        ["compare", f"odd {EVIL}"],
        ["compare", "runs/0", "runs/1", "--against", EVIL],
        ["show", EVIL],
        [EVIL],
        ["run", f"--{EVIL}"],
    ):
        line = refused(*words)
        assert is_harmless(line) and "owned" in line


@pytest.mark.parametrize("command", [None, *(command.name for command in app.registered_commands)])
def test_h_is_help(fedsir: Fedsir, command: str | None) -> None:
    words = [command] if command else []
    short = fedsir(*words, "-h")
    assert (short.code, short.err) == (0, "")
    assert short.out == fedsir(*words, "--help").out
    assert short.out.startswith(f"Usage: fedsir {command or ''}")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
@pytest.mark.parametrize(
    "words", [("list", "methods"), ("show", "--json"), ("run", "--help"), ("plan", "--workers", "1")]
)
def test_a_full_disk_and_a_closed_pipe_are_one_line(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "fedsir", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (2, "fedsir: The output cannot be written: No space left on device.\n")
    reader, writer = os.pipe()
    os.close(reader)
    closed = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    os.close(writer)
    assert closed.returncode != 0
    assert closed.stderr in ("fedsir: The output cannot be written: Broken pipe.\n", "")  # help just stops


def test_suggested_words_can_be_pasted(refused: Callable[..., str], fedsir: Fedsir, npz: Callable[..., Path]) -> None:
    for name in ("one copy", "other copy"):
        words = ["run", "--method", "fedavg", "--workers", "1", "--rounds", "1", "--out", f"all/{name}"]
        assert fedsir(*words, "--dataset", npz().rename(f"{name}.npz")).code == 0
    suggested = shlex.split(refused("compare", "all").split("Choose with ")[1].split(" or --only")[0])
    assert suggested[0] == "--only" and suggested[1].endswith("one copy.npz")
    assert fedsir("compare", "all", *suggested).code == 0
