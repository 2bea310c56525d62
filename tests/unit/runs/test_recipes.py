"""Recipes: what comes with fedsir, what a user writes, and how the two meet the command line."""

from pathlib import Path

import pytest

from fedsir.errors import ConfigError
from fedsir.methods.registry import known_methods
from fedsir.methods.settings import MethodConfig
from fedsir.runs.config import parse_config
from fedsir.runs.recipes import load_recipe, recipe_names, resolve

OWN = """
summary = "mine"
rounds = 7
[data]
dataset = "digits"
[method]
name = "fedsir"
lr = 0.5
[method.relabel]
every = 3
[per_method.fedsir.identify]
epochs = 2
[per_method.fedavg]
batch_size = 16
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.toml"
    path.write_text(OWN)
    return str(path)


@pytest.mark.parametrize("method", sorted(known_methods()))
@pytest.mark.parametrize("recipe", sorted(recipe_names()))
def test_every_recipe_is_sound_for_every_method(recipe: str, method: str) -> None:
    config = resolve(recipe, {"method": {"name": method}})
    assert config.method.name == method
    assert parse_config(config.tree()).sha256 == config.sha256


def test_every_recipe_says_in_a_line_what_it_is() -> None:
    for name, summary in recipe_names().items():
        assert summary == load_recipe(name)["summary"]
        assert 10 < len(summary) < 120 and "\n" not in summary


def test_a_recipe_by_path_with_its_settings_per_method(own: str) -> None:
    config = resolve(own)
    assert (config.rounds, config.method.lr, config.method.batch_size) == (7, 0.5, 64)
    assert config.tree()["method"]["relabel"]["every"] == 3
    assert config.tree()["method"]["identify"]["epochs"] == 2


def test_another_method_keeps_only_what_all_methods_have(own: str) -> None:
    method = resolve(own, {"method": {"name": "fedavg"}}).tree()["method"]
    assert method.keys() == MethodConfig.model_fields.keys()
    assert (method["name"], method["batch_size"], method["lr"]) == ("fedavg", 16, 0.5)


def test_the_later_word_is_the_stronger(own: str) -> None:
    options = {"rounds": 9, "method": {"identify": {"epochs": 4}}}
    config = resolve(own, options, ["rounds=11", "method.identify.lr=1", "rounds=12"])
    identify = config.tree()["method"]["identify"]
    assert (config.rounds, identify["epochs"], identify["lr"]) == (12, 4, 1.0)


def test_the_method_can_also_be_named_by_an_assignment(own: str) -> None:
    assert resolve(own, {}, ["method.name=fedavg"]).method.name == "fedavg"


def test_shown_settings_run_back_to_the_same_settings(tmp_path: Path) -> None:
    shown = tmp_path / "shown.toml"
    for recipe in recipe_names():
        config = resolve(recipe, {"rounds": 9})
        shown.write_text(config.to_toml(), encoding="utf-8")
        assert resolve(str(shown)).sha256 == config.sha256


def test_a_packaged_name_is_not_shadowed_by_a_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").write_text("rounds = 3\n[method]\nname = 'fedavg'\n")
    assert resolve("digits").rounds == 20
    assert resolve("./digits").rounds == 3


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("rounds = ", r"own\.toml is not a TOML file"),
        ('method = "fedavg"', "method: "),
        ("data = 3\n[method]\nname='fedavg'", "data: "),
        ("per_method = 3\n[method]\nname='fedavg'", "per_method: "),
        ("[method]\nname='fedavg'\n[per_method]\nfedavg = 3", "fedavg: "),
        ("[method]\nname='fedavg'\n[per_method.fedsri]\nlr = 1", "'fedsri'.*Did you mean 'fedsir'"),
        ("[method]\nname='fedavg'\n[per_method.fedavg]\nlrr = 1", r"method\.lrr"),
        ("[data]\nalpha = 1", r"method\.name is missing"),
        ("[method]\nname = 3", "no method '3'"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused_in_a_line(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as fault:
        resolve(str(path))
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("name", ["digit", "no-such", "../recipes/digits", "a" * 300, "."])
def test_a_recipe_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="There is no recipe or file") as fault:
        resolve(name)
    assert name in str(fault.value) and "own-data" in str(fault.value)


@pytest.mark.parametrize("word", ["data=5", "data=abc", "method=fedavg", "method.name=[1]"])
def test_a_value_where_a_table_belongs_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=word.split("=")[0].split(".")[0]):
        resolve(None, {}, [word])


@pytest.mark.parametrize(
    ("dataset", "advice"),
    [
        ("cifar11", "Did you mean 'cifar1"),
        ("CIFAR10", "Did you mean 'cifar10'"),
        ("a" * 300, "no such file or folder"),
    ],
)
def test_a_data_set_that_is_not_there_is_named(dataset: str, advice: str) -> None:
    with pytest.raises(ConfigError, match=rf"no data set '{dataset}'.*{advice}"):
        resolve(None, {"data": {"dataset": dataset}})


def test_a_data_set_brings_its_recipe() -> None:
    assert resolve(None) == resolve("digits")
    assert resolve(None, {"data": {"dataset": "cifar100"}}) == resolve("cifar100")
    with pytest.raises(ConfigError, match=r"'CIFAR10-CPU'.*Did you mean 'cifar10-cpu'"):
        resolve("CIFAR10-CPU")


def test_a_preset_that_is_named_beats_what_the_recipe_says_for_another() -> None:
    recipe, named = (resolve("digits", {"method": settings}).method for settings in ({}, {"preset": "plus"}))
    assert (recipe.relabel.rule, named.relabel.rule) == ("direction", "bayes")  # type: ignore[attr-defined]
    assert named.identify.epochs == recipe.identify.epochs == 10  # type: ignore[attr-defined]
    own = resolve("digits", {"method": {"preset": "plus", "relabel": {"rule": "residual"}}}).method
    assert own.relabel.rule == "residual"  # type: ignore[attr-defined]
