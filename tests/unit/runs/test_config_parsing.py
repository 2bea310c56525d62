"""Settings: dotted assignments, faults that name the key, resolved schedules, a stable hash."""

import math
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from fedsir.errors import ConfigError
from fedsir.methods.registry import BUILT_IN, config_class, known_methods
from fedsir.runs.config import RunConfig, merge, nested, parse_assignment, parse_config, read_toml

FEDAVG = {"method": {"name": "fedavg"}}
FEDSIR = {"method": {"name": "fedsir"}}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("rounds=5", {"rounds": 5}),
        ("method.lr=1e-3", {"method": {"lr": 0.001}}),
        ("method.relabel.enabled=false", {"method": {"relabel": {"enabled": False}}}),
        ("a=True", {"a": "True"}),
        ("data.noisy_clients=[1, 2]", {"data": {"noisy_clients": [1, 2]}}),
        ("data.transition=[[0.5, 0.5], [0, 1]]", {"data": {"transition": [[0.5, 0.5], [0, 1]]}}),
        ("data.partition=iid", {"data": {"partition": "iid"}}),
        ('data.partition="iid"', {"data": {"partition": "iid"}}),
        ("data.dataset=a folder/with = signs", {"data": {"dataset": "a folder/with = signs"}}),
        ("data.noisy_clients=3,4", {"data": {"noisy_clients": "3,4"}}),
        (" method.lr = 2 ", {"method": {"lr": 2}}),
        ("data.dataset=", {"data": {"dataset": ""}}),
        ("data.dataset=[unclosed", {"data": {"dataset": "[unclosed"}}),
        ("method.lr=1\nrounds = 7", {"method": {"lr": "1\nrounds = 7"}}),
    ],
)
def test_an_assignment_is_read_as_toml_or_else_as_text(text: str, tree: dict[str, Any]) -> None:
    assert parse_assignment(text) == tree


def test_nan_is_read_and_refused_where_it_stands() -> None:
    assert math.isnan(parse_assignment("method.lr=nan")["method"]["lr"])
    for key in ("participation", "method.lr", "data.alpha", "data.noise_rate"):
        with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
            parse_config(merge(FEDAVG, parse_assignment(f"{key}=nan")))


@pytest.mark.parametrize("text", ["method", "=5", ".lr=1", "method.=1", "method..lr=1", "", " =1"])
def test_an_assignment_needs_a_key_and_a_value(text: str) -> None:
    with pytest.raises(ConfigError, match="--set"):
        parse_assignment(text)


def test_merge_goes_table_by_table_and_leaves_its_arguments_alone() -> None:
    below, above = {"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}, "c": {"z": 6}}
    assert merge(below, above) == {"a": {"x": 1, "y": 5}, "b": 3, "c": {"z": 6}}
    assert (below, above) == ({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"y": 5}, "c": {"z": 6}})


@pytest.mark.parametrize(
    ("wrong", "key", "right"),
    [
        ({"round": 3}, "round", "rounds"),
        ({"data": {"alhpa": 1}}, "data.alhpa", "alpha"),
        ({"model": {"nme": "x"}}, "model.nme", "name"),
        ({"method": {"name": "fedsir", "bach_size": 4}}, "method.bach_size", "batch_size"),
        ({"method": {"name": "fedsir", "relabel": {"evry": 4}}}, "method.relabel.evry", "every"),
        ({"method": {"name": "fedsir", "kd": {"temprature": 4}}}, "method.kd.temprature", "temperature"),
        ({"method": {"name": "fedsri"}}, "fedsri", "fedsir"),
    ],
)
def test_an_unknown_word_is_named_with_a_suggestion_at_every_level(wrong: Any, key: str, right: str) -> None:
    with pytest.raises(ConfigError) as fault:
        parse_config(merge(FEDSIR, wrong))
    assert repr(key) in str(fault.value)
    assert f"Did you mean {right!r}?" in str(fault.value)
    assert "\n" not in str(fault.value)


def test_a_word_with_nothing_near_it_gets_the_list_of_what_is_known() -> None:
    with pytest.raises(ConfigError, match=r"no setting 'model\.zzzz'\. Known: name, weights\."):
        parse_config(merge(FEDAVG, {"model": {"zzzz": 1}}))


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"seed": -1}, "seed"),
        ({"rounds": 0}, "rounds"),
        ({"participation": 0}, "participation"),
        ({"participation": 1.1}, "participation"),
        ({"dropout": 1}, "dropout"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"rounds": "many"}, "rounds"),
        ({"data": 5}, "data"),
        ({"data": {"alpha": 0}}, "data.alpha"),
        ({"data": {"noise_rate": 1.01}}, "data.noise_rate"),
        ({"data": {"noise": "matrix"}}, "data"),
        ({"data": {"dataset": ""}}, "data.dataset"),
        ({"model": {"name": "resnet19"}}, "model.name"),
        ({"method": {"lr": 0}}, "method.lr"),
        ({"method": {"batch_size": 1}}, "method.batch_size"),
    ],
)
def test_a_value_out_of_range_is_one_line_that_begins_with_its_key(wrong: Any, key: str) -> None:
    with pytest.raises(ConfigError) as fault:
        parse_config(merge(FEDAVG, wrong))
    assert str(fault.value).startswith(f"{key}: ")
    assert "\n" not in str(fault.value)


@pytest.mark.parametrize("tree", [{}, {"method": {}}, {"method": "fedavg"}, {"method": {"lr": 1}}])
def test_settings_without_a_method_say_so(tree: Any) -> None:
    with pytest.raises(ConfigError, match=r"method\.name is missing"):
        parse_config(tree)


def test_schedules_left_open_are_stored_as_numbers() -> None:
    method = parse_config({**FEDSIR, "rounds": 50}).tree()["method"]
    assert method["relabel"]["every"] == 10
    assert method["kd"]["ramp_begin"] == pytest.approx(1.0)
    assert method["kd"]["ramp_end"] == pytest.approx(24.5)
    given = parse_config({"method": {"name": "fedsir", "relabel": {"every": 7}}, "rounds": 50})
    assert given.tree()["method"]["relabel"]["every"] == 7


def test_the_hash_depends_on_values_and_not_on_how_they_were_given() -> None:
    one = parse_config({"seed": 3, "rounds": 5, **FEDAVG})
    other = parse_config({**FEDAVG, "rounds": 5.0, "seed": "3", "data": {"alpha": 2}})
    assert one.sha256 == other.sha256
    assert parse_config({"seed": 4, "rounds": 5, **FEDAVG}).sha256 != one.sha256
    assert len(one.sha256) == 64


@pytest.mark.parametrize("method", sorted(known_methods()))
def test_settings_survive_toml(method: str) -> None:
    config = parse_config({"method": {"name": method}, "rounds": 30, "data": {"noisy_clients": ["3", "4"]}})
    back = parse_config(tomllib.loads(config.to_toml()))
    assert back.tree() == config.tree()
    assert back.sha256 == config.sha256  # checkpoints carry it
    assert type(back.method) is type(config.method)


def test_a_matrix_and_a_path_with_odd_letters_survive_toml() -> None:
    data = {"dataset": 'a "b"\\ü\t', "noise": "matrix", "transition": [[1, 0], [0.25, 0.75]]}
    config = parse_config({**FEDAVG, "data": data})
    assert parse_config(tomllib.loads(config.to_toml())).tree() == config.tree()
    assert config.tree()["data"]["transition"] == [[1.0, 0.0], [0.25, 0.75]]


def test_settings_cannot_be_changed_after_the_check() -> None:
    config = parse_config(FEDAVG)
    with pytest.raises(ValueError, match="frozen"):
        config.rounds = 3  # type: ignore[misc]


def leaves(model: type[BaseModel], prefix: str) -> Iterator[str]:
    """Yield the dotted key of every setting that cannot be true or false."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{prefix}{name}.")
        elif "bool" not in str(field.annotation):
            yield prefix + name


@pytest.mark.parametrize("method", BUILT_IN)
def test_true_is_not_a_number_in_any_setting(method: str) -> None:
    keys = [key for key in leaves(config_class(method), "method.") if key != "method.name"]
    keys += [key for key in leaves(RunConfig, "") if not key.startswith("method")]
    assert len(keys) >= 30
    for key in keys:
        with pytest.raises(ConfigError, match=rf"^{key}: .*given: (True|true)\)"):
            parse_config(merge({"method": {"name": method}}, nested(key, True)))
    with pytest.raises(ConfigError, match=r"data\.transition: must be a number"):
        parse_config(merge(FEDAVG, {"data": {"noise": "matrix", "transition": [[True, 0], [0, 1]]}}))


@pytest.mark.parametrize("key", ["data.dataset", "data.noisy_clients", "model.weights", "method.na\udcffme", "\ud800"])
def test_half_a_character_is_refused_before_it_reaches_a_file(key: str) -> None:
    value: Any = ["a", "\ud800"] if key == "data.noisy_clients" else "\ud800.pth"
    with pytest.raises(ConfigError, match=r"is not valid text") as fault:
        parse_config(merge(FEDAVG, nested(key, value)))
    str(fault.value).encode()


@pytest.mark.parametrize("value", [10**6000, "9" * 6000, [[1] * 5000]], ids=["number", "text", "list"])
def test_a_very_long_value_is_cut_short(value: Any) -> None:
    with pytest.raises(ConfigError, match="rounds") as fault:
        parse_config({**FEDAVG, "rounds": value})
    assert len(str(fault.value)) < 300


def test_an_assignment_of_many_digits_or_levels_is_no_traceback() -> None:
    with pytest.raises(ConfigError, match="rounds"):
        parse_config(merge(FEDAVG, parse_assignment("rounds=" + "9" * 5000)))
    assert parse_assignment("a=" + "[" * 5000)["a"].startswith("[[")
    with pytest.raises(ConfigError, match=r"There is no setting 'a\.a\."):
        parse_assignment(".".join("a" * 5000) + "=1")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a = " + b"[" * 5000, "nested too deeply"),
        (b"a" + b".a" * 5000 + b" = 1", "no setting|nested too deeply"),
        (b"a = " + b"9" * 5000, "holds a number of thousands of digits"),
        (b"a = '\xed\xa0\x80'", "is not a TOML file"),
        (b"a = ", "is not a TOML file"),
        (None, "cannot be read"),
    ],
    ids=["lists", "tables", "digits", "surrogate", "cut", "missing"],
)
def test_a_file_that_is_no_toml_is_one_line(tmp_path: Path, content: bytes | None, reason: str) -> None:
    path = tmp_path / "own.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        parse_config({**FEDAVG, **read_toml(path)})


def test_a_byte_order_mark_is_no_setting(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_bytes(b"\xef\xbb\xbfrounds = 3\n")
    assert read_toml(tmp_path / "own.toml") == {"rounds": 3}


def test_paths_of_data_are_stored_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = {"dataset": "own.npz", "public": "../public", "noise": "file", "labels_file": "given.npy"}
    config = parse_config({**FEDAVG, "data": data, "model": {"weights": "first.pth"}})
    assert config.data.dataset == str(tmp_path / "own.npz")
    assert config.data.public == str(tmp_path.parent / "public")
    assert config.data.labels_file == str(tmp_path / "given.npy")
    assert config.model.weights == str(tmp_path / "first.pth")
    monkeypatch.chdir("/")
    assert parse_config(config.tree()).sha256 == config.sha256
    assert parse_config({**FEDAVG, "data": {"public": "held-out"}}).data.public == "held-out"


@pytest.mark.parametrize(
    ("tree", "right"),
    [
        ({"method": {"name": "FedSIR"}}, "fedsir"),
        ({"method": {"name": "FedNoRo"}}, "fednoro"),
        ({"model": {"name": "ResNet-18"}}, "resnet18"),
        ({"data": {"Alpha": 2}}, "alpha"),
    ],
)
def test_names_as_papers_write_them_are_understood_enough_to_suggest(tree: Any, right: str) -> None:
    with pytest.raises(ConfigError, match=f"Did you mean '{right}'"):
        parse_config(merge(FEDAVG, tree))
