"""A federation on loopback, each part a process: TLS, registered keys, and kill -9 of everything in turn."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from three_sites import BAD, SITES, repaired
from watched_machine import Watched

if not Path("/proc/self/environ").exists():
    pytest.skip("looks at processes in /proc", allow_module_level=True)

pytestmark = pytest.mark.flower


def test_unregistered_and_unencrypted_nodes_are_refused(machine: Watched) -> None:
    machine.federation()
    machine.make_site("stranger", f"{SITES[0]}.npz")
    machine.start_site("stranger")
    machine.start(
        "unencrypted",
        *("flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{machine.port}", "--max-retries", "1"),
        *("--host", "127.0.0.1", "--port", "19877"),
    )
    machine.wait_for("the stranger ends", lambda: machine.started["site-stranger"].poll() is not None)
    machine.wait_for("the unencrypted node ends", lambda: machine.started["unencrypted"].poll() is not None)
    assert machine.started["site-stranger"].returncode != 0
    assert machine.started["unencrypted"].returncode != 0
    assert "[ControlServicer.RegisterNode]" not in (machine.folder / "superlink.log").read_text()


@pytest.mark.slow
def test_kill_nine_of_everything_in_turn(machine: Watched) -> None:
    machine.federation()
    for site in SITES:
        machine.make_site(site, f"{site}.npz")
        machine.register(site)
        machine.start_site(site)
    machine.run("fedsir", "flower", "new", "app", "--method", "fedsir", "--rounds", "6")
    settings = {"min_sites": 2, "wait": 300, "sites": ",".join(SITES)}
    machine.begin(**settings)
    machine.wait_for("two rounds", lambda: len(machine.lines()) >= 2)

    # A site, which remembers repaired labels: it is left out, and comes back with them.
    machine.stop(f"site-{BAD}", how=signal.SIGKILL)
    machine.wait_for("the site is left out", lambda: any(BAD in line["failures"] for line in machine.lines()))
    t = len(machine.lines())
    time.sleep(65)  # Flower takes a node for connected until its heartbeat is late
    machine.start_site(BAD)
    machine.wait_for("the site is back", lambda: any(BAD not in line["failures"] for line in machine.lines()[t:]))

    # The server's app.
    (server,) = machine.alive("flwr-serverapp")
    n_before = len(machine.lines())
    os.kill(server, signal.SIGKILL)
    machine.stop("flwr-run")
    machine.begin(**settings)
    machine.wait_for("it goes on", lambda: len(machine.lines()) > n_before or _is_done(machine))

    # The SuperLink, with all it has started.
    machine.stop("superlink", how=signal.SIGKILL)
    machine.stop("flwr-run")
    machine.start_superlink()
    machine.begin(**settings)
    machine.wait_for("the run ends", lambda: _is_done(machine))

    result = json.loads((machine.folder / "app" / "run" / "result.json").read_text())
    assert [line["round"] for line in machine.lines()] == list(range(7))
    assert result["noisy_clients"] == [BAD]
    assert BAD in {entry["client"] for entry in result["left_out"]}
    assert all(entry["reason"] for entry in result["left_out"])
    labels = repaired(machine.folder)
    assert labels["wrong_after"] < labels["wrong_before"] / 2


def _is_done(machine: Watched) -> bool:
    return (machine.folder / "app" / "run" / "result.json").exists()


@pytest.mark.slow
def test_the_script_of_the_docs(tmp_path: Path) -> None:
    """What docs/deploy.md shows is what the script prints, but for ports and seconds."""
    root = Path(__file__).parents[2]
    words = ("python", str(root / "examples" / "three_sites.py"), "three-sites")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (root / "docs" / "deploy.md").read_text(encoding="utf-8")
    shown = page.partition("```\n$ flower-superlink")[2].partition("```")[0]
    assert _timeless(f"$ flower-superlink{shown}", tmp_path) == _timeless(done.stdout, tmp_path)


def _timeless(text: str, folder: Path) -> list[str]:
    text = text.replace(f"{folder}/", "").replace(" \\\n   ", "")
    return [re.sub(r"\d{4,5}\b|seconds [\d.]+", "", line) for line in text.splitlines() if line.strip()]
