"""What needs no torch does not load it: help, version, lists, resolved settings."""

import json
import subprocess
import sys

import pytest

WATCH = """
import atexit, json, sys
atexit.register(lambda: sys.stderr.write("\\nLOADED " + json.dumps(sorted(sys.modules))))
sys.argv = ["fedsir", *sys.argv[1:]]
from fedsir.cli import main
main()
"""


def loaded_by(*words: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", WATCH, *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.strip()
    return set(json.loads(done.stderr.partition("LOADED ")[2]))


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("run", "--help"),
        ("--version",),
        ("list", "methods"),
        ("list", "datasets"),
        ("list", "recipes"),
        ("list", "models"),
        ("list", "reproductions"),
        ("reproduce", "--help"),
        ("report", "--help"),
        ("flower", "--help"),
        ("flower", "site", "--help"),
        ("show", "digits", "--method", "fedsir"),
    ],
    ids=" ".join,
)
def test_torch_and_scikit_learn_stay_unloaded(words: tuple[str, ...]) -> None:
    loaded = loaded_by(*words)
    assert "fedsir.cli.app" in loaded  # the watch itself works
    assert not loaded & {"torch", "sklearn", "scipy", "PIL", "safetensors", "matplotlib", "flwr", "ray"}


def test_importing_the_package_is_light() -> None:
    code = "import sys, fedsir, fedsir.cli; print(sorted({'torch', 'pydantic', 'typer', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
