"""Sites that answer rubbish, too late, or with other data, as real processes of one federation."""

import json
import shutil
import time
from pathlib import Path

import pytest
from misbehaving_sites import write_method
from three_sites import SITES
from watched_machine import Watched

import fedsir

if not Path("/proc/self/environ").exists():
    pytest.skip("looks at processes in /proc", allow_module_level=True)

pytestmark = [pytest.mark.flower, pytest.mark.slow]
A, B, C = SITES
TIMEOUT = 240  # seconds; a gigabyte takes a while on a busy machine
OLDER = f"older: it has fedsir 0.0.9, the server has {fedsir.__version__}: install the same version"
PLAN = {
    1: (A, "nan"),
    2: (B, "shape"),
    3: (C, "missing"),
    4: (A, "not_unit"),
    5: (B, "slow"),
    6: (C, "gigabyte"),
    7: (B, "distinct_gigabyte"),
    8: (A, "other_data"),  # which is found out in the round after
}
TOO_LARGE = "bytes, more than the 64,000,000 allowed (max-reply)"
REASONS = {
    1: (A, "is not finite"),
    2: (B, "other names, types or shapes"),
    3: (C, "n_samples is missing"),
    4: (A, "not of unit length"),
    5: (B, f"it did not answer within {TIMEOUT} s"),
    6: (C, TOO_LARGE),
    7: (B, TOO_LARGE),  # which the site says itself, and sends no more than that
    9: (A, "its data have changed since the run began"),
}


def older_fedsir(folder: Path) -> str:
    """Copy fedsir as another version of it; return where it is."""
    package = folder / "older" / "fedsir"
    shutil.copytree(Path(fedsir.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    file = package / "__init__.py"
    text = file.read_text(encoding="utf-8")
    assert f'__version__ = "{fedsir.__version__}"' in text
    file.write_text(text.replace(f'"{fedsir.__version__}"', '"0.0.9"'), encoding="utf-8")
    return str(package.parent)


def checked(machine: Watched) -> str:
    """Return why `fedsir flower check` fails; nothing where all fits."""
    try:
        machine.run("fedsir", "flower", "check", "app", "sites", "--wait", "60")
    except RuntimeError as problem:
        return str(problem)
    return ""


def test_each_is_left_out_and_the_record_says_why(machine: Watched) -> None:
    machine.federation()
    file = write_method(machine.folder, PLAN)
    for site in SITES:
        machine.make_site(site, f"{site}.npz")
        machine.register(site)
        machine.start_site(site)
    machine.make_site("older", f"{A}.npz")
    machine.register("older")
    here = dict(machine.environment)
    machine.environment["PYTHONPATH"] = older_fedsir(machine.folder)
    machine.start_site("older")
    machine.environment = here
    machine.run("fedsir", "flower", "new", "app", "--method", f"{file.name}:Naughty", "--rounds", "9")

    # Before anything trains: who does not fit, and that there are too few.
    machine.wait_for("the check finds the older fedsir", lambda: OLDER in checked(machine))
    too_few = machine.run_app(min_sites=9, wait=1)
    assert "of at least 9 sites came within 1 s" in too_few["error"]
    assert machine.lines() == []

    # A second site of the same name comes while the run is under way.
    machine.begin(min_sites=3, wait=900, timeout=TIMEOUT, sites=",".join(SITES))
    machine.wait_for("the run has begun", machine.lines)
    machine.make_twin(A)
    machine.wait_for_file(f"{B}-5-slow")
    time.sleep(TIMEOUT + 10)
    machine.let_go(5)
    machine.wait_for("the run ends", lambda: machine.result() is not None)

    result = machine.result()
    assert result is not None
    assert [line["round"] for line in machine.lines()] == list(range(10))
    found = {f"{entry['round']} {entry['client']}: {entry['reason']}" for entry in result["left_out"]}
    for t, (client, words) in REASONS.items():
        (entry,) = [entry for entry in found if entry.startswith(f"{t} {client}: ") and words in entry] or [""]
        assert entry, f"round {t}, {client}, {words}: not in {json.dumps(sorted(found), indent=1)}"
        found.remove(entry)
    others = sorted(entry.partition(" ")[2] for entry in found)
    assert len(others) == 2, others
    assert "two sites have the same client id" in others[0]
    assert "it has fedsir 0.0.9" in others[1]
    assert set(result["accuracy_by_site"]) == {B, C}
