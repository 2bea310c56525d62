"""A federation on loopback, each part a process: TLS, registered keys, and kill -9 of everything in turn."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from misbehaving_sites import write_method
from three_sites import BAD, SITES, repaired
from watched_machine import Watched

if not Path("/proc/self/environ").exists():
    pytest.skip("looks at processes in /proc", allow_module_level=True)

pytestmark = pytest.mark.flower
# What the recipe for digits says for fedsir, and not for a method of one's own.
OF_DIGITS = (
    *("identify.epochs=10", "identify.lr=0.001", "identify.weight_decay=0.005", "identify.min_class_samples=5"),
    *('relabel.rule="direction"', "relabel.min_samples=5"),
)


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
    """Each is killed in the middle of a round, while the bad site, which remembers repaired labels, trains."""
    machine.federation()
    file = write_method(machine.folder, dict.fromkeys((2, 3, 4), (BAD, "held")))
    for site in SITES:
        machine.make_site(site, f"{site}.npz")
        machine.register(site)
        machine.start_site(site)
    words = [word for setting in OF_DIGITS for word in ("--set", f"method.{setting}")]
    machine.run("fedsir", "flower", "new", "app", "--method", f"{file.name}:Held", "--rounds", "6", *words)
    settings = {"min_sites": 3, "wait": 900}
    machine.begin(**settings)

    # A site: it is left out of the round, the run waits for it, and it comes back with what it remembers.
    machine.wait_for_file(f"{BAD}-2-held")
    machine.stop(f"site-{BAD}", how=signal.SIGKILL)
    machine.let_go(2)
    machine.wait_for("the site is left out", lambda: any(BAD in line["failures"] for line in machine.lines()))
    machine.bring_back(BAD, lambda: (machine.folder / f"{BAD}-3-held").exists())

    # The server's app.
    (server,) = machine.alive("flwr-serverapp")
    os.kill(server, signal.SIGKILL)
    machine.stop("flwr-run")
    machine.let_go(3)
    machine.begin(**settings)
    machine.wait_for_file(f"{BAD}-4-held")

    # The SuperLink, with all it has started.
    machine.stop("superlink", how=signal.SIGKILL)
    machine.stop("flwr-run")
    machine.let_go(4)
    machine.start_superlink()
    machine.begin(**settings)
    machine.wait_for("the run ends", lambda: machine.result() is not None)

    result = machine.result()
    assert result is not None
    assert [line["round"] for line in machine.lines()] == list(range(7))
    assert result["noisy_clients"] == [BAD]
    assert [entry["client"] for entry in result["left_out"]] == [BAD]
    assert result["left_out"][0]["reason"]
    labels = repaired(machine.folder)
    assert labels["wrong_after"] < labels["wrong_before"] / 2


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
