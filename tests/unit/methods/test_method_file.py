"""Methods in a file of the user's own: found, reloaded after an edit, refused with one line."""

from pathlib import Path
from typing import Any

import pytest

from fedsir.errors import ConfigError
from fedsir.methods.registry import method_class
from fedsir.runs.config import parse_config
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, default_out, run_experiment

CODE = """
from pydantic import Field
from fedsir.methods.settings import MethodConfig
from fedsir.methods.fedavg import FedAvg

class Mine(FedAvg):
    name = "mine"
    summary = "FedAvg with a setting of its own"

    class Config(MethodConfig):
        factor: float = Field(VALUE, ge=0, description="what to multiply")

class NoMethod:
    pass
"""


@pytest.fixture
def name(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(CODE.replace("VALUE", "2.0"))
    return f"{path}:Mine"


def tree(name: str, **method: Any) -> dict[str, Any]:
    data = {"n_train": 120, "n_test": 50, "n_clients": 3, "partition": "iid"}
    return {"rounds": 1, "data": data, "method": {"name": name, **method}}


def test_the_class_is_found_once(name: str) -> None:
    assert method_class(name) is method_class(name)
    assert method_class(name).name == "mine"


def test_its_settings_are_checked_like_any_other(name: str) -> None:
    assert parse_config(tree(name, factor=3)).method.model_dump()["factor"] == 3
    with pytest.raises(ConfigError, match=r"no setting 'method\.facto'.*factor"):
        parse_config(tree(name, facto=3))


@pytest.mark.parametrize("workers", [1, 2])
def test_it_runs_in_workers_too(name: str, workers: int, tmp_path: Path) -> None:
    config = parse_config(tree(name))
    result = run_experiment(config, RunTarget(tmp_path / "run", workers=workers))
    assert result["method"] == "mine"
    assert "mine-" in default_out(config).name


def test_an_edit_is_another_method_and_another_run(name: str) -> None:
    before = parse_config(tree(name))
    Path(name.rpartition(":")[0]).write_text(CODE.replace("VALUE", "5.0"))
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


def test_a_settings_file_cannot_run_code_by_itself(name: str, tmp_path: Path) -> None:
    file = tmp_path / "theirs.toml"
    file.write_text(parse_config(tree(name)).to_toml())
    with pytest.raises(ConfigError, match="if you trust it, name it with --method"):
        resolve(str(file))
    assert resolve(str(file), {"method": {"name": name}}).method.name == name


@pytest.mark.parametrize(
    ("content", "wanted", "message"),
    [
        (None, "Mine", "cannot read .*nowhere"),
        ("class Mine(:", "Mine", "line 1 cannot be run: SyntaxError"),
        ("import a_module_that_is_not_there", "Mine", "cannot be run: ModuleNotFoundError"),
        (CODE.replace("VALUE", "1.0"), "Mein", "has no class 'Mein'.*Mine"),
        (CODE.replace("VALUE", "1.0"), "NoMethod", "NoMethod is not a subclass"),
    ],
)
def test_what_is_wrong_is_one_line(content: str | None, wanted: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("nowhere.py" if content is None else "mine.py")
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        method_class(f"{path}:{wanted}")
    assert "\n" not in str(caught.value)
