"""Methods of the user's own, in a file or as an object: found, reloaded after an edit, refused with one line."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedsir
from fedsir.cli import main
from fedsir.data.federation import FederatedData
from fedsir.errors import ConfigError, FedsirError
from fedsir.methods.registry import method_class
from fedsir.runs.config import parse_config
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, default_out, run_experiment

CODE = """
from dataclasses import dataclass
from typing import Annotated
import torch
from pydantic import Field
from fedsir.data.shapes import Shape
from fedsir.methods.base import Client, Federation, Method, ServerState, client_task
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.replies import Reply, Trained, Weights
from fedsir.methods.settings import MethodConfig

@dataclass(frozen=True)
class Told(Reply):
    labels: Annotated[torch.Tensor, Shape("classes", kind="int")]

class Mine(FedAvg):
    name = "mine"

    class Config(MethodConfig):
        factor: float = Field(2.0, ge=0, description="what to multiply")

    def round(self, t, state, fed):
        told = fed.ask(self.count, fed.participants)
        return super().round(t, state, fed)

    @client_task
    def count(self, client: Client) -> Told:
        return Told(client.data.labels.bincount(minlength=10))

class NoMethod:
    pass
"""
DATA = {"n_train": 120, "n_test": 50, "n_clients": 3, "partition": "iid"}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    """Return a function that writes the code above with a change, and returns the method's name."""

    def written(old: str = "", new: str = "") -> str:
        assert old in CODE
        (tmp_path / "mine.py").write_text(CODE.replace(old, new, 1))
        return f"{tmp_path / 'mine.py'}:Mine"

    return written


def tree(name: str, **method: Any) -> dict[str, Any]:
    return {"rounds": 1, "data": DATA, "method": {"name": name, **method}}


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return FederatedData.load("digits", seed=0, **DATA)


def test_its_settings_are_checked_like_any_other(write: Callable[..., str]) -> None:
    name = write()
    assert method_class(name) is method_class(name)
    assert parse_config(tree(name, factor=3)).method.model_dump()["factor"] == 3
    with pytest.raises(ConfigError, match=r"no setting 'method\.facto'.*factor"):
        parse_config(tree(name, facto=3))


def test_the_same_code_and_seed_give_the_same_model_however_it_is_named(
    write: Callable[..., str], data: FederatedData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write()
    monkeypatch.chdir(tmp_path)
    spellings = {name: 1, "mine.py:Mine": 2, f"..{os.sep}{tmp_path.name}{os.sep}mine.py:Mine": 1}
    hashes = set()
    for i, (spelling, workers) in enumerate(spellings.items()):
        config = parse_config(tree(spelling))
        result = run_experiment(config, RunTarget(tmp_path / f"run-{i}", workers=workers))
        hashes.add(result["model_sha256"])
        assert "mine-" in default_out(config).name
    assert len(hashes) == 1
    by_name, by_object = (
        fedsir.simulate(data, method, rounds=1, recipe="digits", model="small_cnn").run().state.model
        for method in (name, method_class(name)(resolve("digits", {"method": {"name": name}}).method))
    )
    assert all((by_name[key] == by_object[key]).all() for key in by_name)


def test_an_edit_is_another_method_and_another_run(write: Callable[..., str]) -> None:
    name = write()
    before = parse_config(tree(name))
    write("2.0", "5.0")
    after = parse_config(tree(name))
    assert after.method.model_dump()["factor"] == 5.0
    assert before.method_sha256 != after.method_sha256
    assert default_out(before) != default_out(after)
    with pytest.raises(ConfigError, match="method_sha256: these settings were made for other code"):
        parse_config(before.tree())


def test_installed_methods_have_no_hash() -> None:
    assert parse_config(tree("fedavg")).method_sha256 is None
    with pytest.raises(ConfigError, match="method_sha256"):
        parse_config({**tree("fedavg"), "method_sha256": "0" * 64})


def test_a_settings_file_cannot_run_code_by_itself(write: Callable[..., str], tmp_path: Path) -> None:
    name, file = write(), tmp_path / "theirs.toml"
    file.write_text(parse_config(tree(name)).to_toml())
    with pytest.raises(ConfigError, match="if you trust it, name it with --method"):
        resolve(str(file))
    assert resolve(str(file), {"method": {"name": name}}).method.name == name


# ---------------------------------------------------------------- faults that are found before anything is trained

RETURN = "return Told(client.data.labels.bincount(minlength=10))"
BEFORE: dict[str, tuple[str, str, str]] = {
    "syntax": ("class NoMethod:", "class NoMethod(:", r"mine\.py, line 30, cannot be run: SyntaxError"),
    "import": ("import torch", "import torhc", r"mine\.py, line 4, cannot be run: ModuleNotFoundError: .*'torhc'"),
    "no class": ("class Mine(", "class Mien(", r"mine\.py has no class 'Mine'\. Did you mean 'Mien'\?"),
    "no name": ('name = "mine"', 'name = ""', r'mine\.py, line 16: Mine has no name; add a line such as name = "mine"'),
    "round": (
        "def round(self, t, state, fed)",
        "def round(self, state, fed)",
        r"line 22: Mine\.round must be def round",
    ),
    "start": (
        "def round(",
        "def start(self): ...\n    def round(",
        r"line 22: Mine\.start must be def start\(self, fed, mo",
    ),
    "no reply": ("-> Told:", ":", r"line 26: Mine\.count must declare what it replies, a dataclass derived from Reply"),
    "other reply": ("-> Told:", "-> dict:", r"line 26: Mine\.count must declare what it replies"),
    "unknown reply": (
        "-> Told:",
        '-> "Tolled":',
        r"line 26: Mine\.count declares a reply that cannot be found .*'Tolled'",
    ),
}


@pytest.mark.parametrize("fault", BEFORE)
def test_a_fault_is_one_line_before_training(
    fault: str, write: Callable[..., str], monkeypatch: pytest.MonkeyPatch, data: FederatedData
) -> None:
    old, new, message = BEFORE[fault]
    name = write(old, new)
    monkeypatch.setattr("fedsir.engines.federation.EngineFederation.ask", lambda *_, **__: pytest.fail("trained first"))
    for way in (lambda: method_class(name), lambda: fedsir.simulate(data, name, rounds=1)):
        with pytest.raises(ConfigError, match=message) as caught:
            way()
        assert "\n" not in str(caught.value)


def test_a_class_without_a_round_or_that_is_no_method(write: Callable[..., str], tmp_path: Path) -> None:
    name = write("class NoMethod:", "class Abstract(Method):\n    name = 'abstract'\n\nclass NoMethod:")
    with pytest.raises(ConfigError, match=r"line 30: Abstract has no round\(…\), which every method needs"):
        method_class(name.replace(":Mine", ":Abstract"))
    with pytest.raises(ConfigError, match="NoMethod is not a subclass"):
        method_class(name.replace(":Mine", ":NoMethod"))
    with pytest.raises(ConfigError, match=r"cannot read .*nowhere"):
        method_class(f"{tmp_path / 'nowhere.py'}:Mine")


# ---------------------------------------------------------------- faults that show when it runs

LATER: dict[str, tuple[str, str, str]] = {
    "in round": ("told =", "1 / 0; told =", r"Round 1: .*mine\.py, line 23: ZeroDivisionError: division by zero\."),
    "below round": (", fed.participants)", ", 7)", r"Round 1: .*mine\.py, line 23: TypeError: 'int' object is not"),
    "task's name": (
        "self.count, fed",
        "'count', fed",
        r"line 23: TypeError: pass the task itself: fed\.ask\(self\.count, …\)\.$",
    ),
    "no task": (
        "@client_task",
        "",
        r"line 23: TypeError: fed\.ask: count is not a task of mine that is marked with @client",
    ),
    "state": (
        "return super().round(t, state, fed)",
        "return {}",
        r"mine\.py, line 22: round returned dict, not ServerState",
    ),
    "model": (
        "return super().round(t, state, fed)",
        "return ServerState(model={})",
        r"mine\.py, line 22: round returned ServerState\(model=…\), but model has other names, types or shapes",
    ),
    "in start": (
        "def round(",
        "def start(self, fed, model):\n        return None\n    def round(",
        r"mine\.py, line 22: start returned NoneType, not ServerState",
    ),
    "in a task": (RETURN, "raise KeyError('x')", r"all 3 clients failed; client 0: .*mine\.py, line 28: KeyError: 'x'"),
    "then in round": (
        RETURN,
        "raise KeyError('x')\n    def start(self, fed, model):\n        return fed.ask(self.count, fed.clients)['0']",
        r"Round 0: all 3 clients failed; client 0: .*mine\.py, line 28: KeyError: 'x'",
    ),
    "reply's type": (RETURN, "return {}", r"client 0: .*mine\.py, line 26: count returned dict, but declares Told\."),
    "missing field": (RETURN, "return Told()", r"line 28: TypeError: .* missing 1 required positional .*'labels'"),
    "shape": ("minlength=10", "minlength=12", r"line 26: labels is \(12,\), not classes with classes = 10"),
    "kind": (
        "bincount(minlength=10)",
        "bincount(minlength=10).float()",
        r"line 26: labels holds torch\.float32, not int",
    ),
}


@pytest.mark.parametrize("fault", LATER)
def test_a_fault_in_a_run_is_one_line_with_file_and_line(
    fault: str, write: Callable[..., str], data: FederatedData
) -> None:
    old, new, message = LATER[fault]
    name = write(old, new)
    for method in (name, method_class(name)()):
        with pytest.raises(FedsirError, match=message) as caught:
            fedsir.simulate(data, method, rounds=1, recipe="digits").run()
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_command_line_leaves_with_code_2_and_one_line(
    workers: str,
    write: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "tiny.toml").write_text("rounds = 1\n[data]\nn_train = 120\nn_test = 50\nn_clients = 3\n")
    name = write(*LATER["in a task"][:2])
    words = ["run", str(tmp_path / "tiny.toml"), "--method", name, "--out", str(tmp_path / "run"), "--workers", workers]
    monkeypatch.setattr("sys.argv", ["fedsir", *words])
    with pytest.raises(SystemExit) as left:
        main()
    _, err = capsys.readouterr()
    assert left.value.code == 2
    assert "Traceback" not in err
    assert re.search(r"fedsir: Round 1: all 3 clients failed.*mine\.py, line 28: KeyError", err.replace("\n", " "))
