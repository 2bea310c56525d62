"""`fedsir audit review` as a command: what it prints, that it serves, and how Ctrl-C ends it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audited import samples


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `fedsir audit` writes, made once: nobody changes this one."""
    root, some = tmp_path_factory.mktemp("audited"), samples()
    np.savez(root / "data.npz", features=some.features, labels=np.array(some.given), clients=np.array(some.clients))
    command = [sys.executable, "-m", "fedsir", "audit", str(root / "data.npz"), "-o", str(root / "audit")]
    subprocess.run(command, check=True, capture_output=True)
    return root / "audit"


@pytest.fixture
def audit(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "my audit"))


@contextmanager
def reviewing(*words: Any, **environment: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "fedsir", "audit", "review", *map(str, words)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
        # Shells ignore Ctrl-C for what they start in the background, and children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_review_from_its_address_to_its_end(audit: Path, number: signal.Signals) -> None:
    with reviewing(audit, "--no-browser") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "8 suspicious samples, 0 of them decided.\n"
        url = process.stdout.readline().removeprefix("Open ").strip()
        post(f"{url}decide", {"sample": 0, "action": "accept"})
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert out.splitlines()[-3:] == [
        "1 of 8 suspicious samples is decided, and saved.",
        f"Go on:  fedsir audit review '{audit}'",
        f"Next:   fedsir audit apply '{audit}'",
    ]


def test_json_has_the_address_first_and_the_count_last(audit: Path) -> None:
    with reviewing(audit, "--no-browser", "--json", "--client", "north") as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["samples"], first["decided"]) == (6, 0)
        post(f"{first['url']}decide", {"sample": 5, "action": "reject"})
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    last = json.loads(out.splitlines()[-1])
    assert last == {"samples": 6, "decided": 1, "next": f"fedsir audit apply '{audit}' --client north"}


def test_a_browser_is_started_where_there_is_a_screen(audit: Path, tmp_path: Path) -> None:
    opened = tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part\nmv {opened}.part {opened}\n')
    browser.chmod(0o755)
    with reviewing(audit, "--json", BROWSER=f"{browser} %s") as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        end = time.monotonic() + 20
        while not opened.exists() and time.monotonic() < end:
            time.sleep(0.05)
        assert opened.read_text().strip() == url


def test_a_torn_line_is_told(audit: Path) -> None:
    (audit / "clients" / "north" / "decisions.jsonl").write_bytes(b'{"id": "4')
    with reviewing(audit, "--no-browser") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "decisions.jsonl: line 1 was cut short by a crash and does not count" in err


def test_what_cannot_be_reviewed_is_one_line(refused, audit: Path, tmp_path: Path) -> None:
    assert "is not the folder of an audit" in refused("audit", "review", tmp_path / "nothing")
    assert "there is no client 'nroth'. Did you mean 'north'?" in refused("audit", "review", audit, "--client", "nroth")
    assert "--data: there is no" in refused("audit", "review", audit, "--data", tmp_path / "gone")
    assert "--port must lie between 0 and 65535" in refused("audit", "review", audit, "--port", "70000")
    (audit / "clients" / "north" / "decisions.jsonl").write_text('{"id": "4", "action": "maybe"}\n')
    assert "line 1 has the action 'maybe'" in refused("audit", "review", audit)
