"""Whole commands, with and without --json."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedsir as package
from fedsir.methods.registry import known_methods
from fedsir.runs import recipes

TINY = ["--set", "data.n_train=60", "--set", "data.n_test=20", "--set", "data.n_clients=3", "--rounds", "1"]
ONE = ["--workers", "1"]


def last_json(text: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    found: dict[str, Any] = json.loads(text.splitlines()[-1], parse_constant=refuse)
    return found


# ---------------------------------------------------------------- as a process


def test_run_as_a_command(shell: Callable[..., Any], fedsir: Callable[..., Any], tmp_path: Path) -> None:
    words = ["run", "--method", "fedsir", *TINY, "--set", "method.identify.epochs=1", *ONE, "--out", "run"]
    first = shell(*words, "--json")
    assert first.code == 0, first.err
    result = last_json(first.out)
    assert len(first.out.splitlines()) == 1
    assert (result["method"], result["rounds"], result["run_dir"]) == ("fedsir", 1, "run")
    assert [line.split()[:2] for line in first.err.splitlines()[1:]] == [["round", "0"], ["round", "1"]]
    assert {path.name for path in (tmp_path / "run").iterdir() if path.name.startswith(".")} == {".lock"}
    again = fedsir(*words)  # the same command on a finished run reports it
    assert (again.code, again.err) == (0, "finished earlier, nothing to do: run\n")
    assert again.out.splitlines()[1].startswith("fedsir ")
    assert again.out.splitlines()[-1] == "run folder: run"


def test_doctor_as_a_command(shell: Callable[..., Any]) -> None:
    done = shell("doctor", "--json")
    assert done.code == 0, done.err
    found = last_json(done.out)
    assert found["deterministic"] is True
    assert found["data"]["digits"] == "found"
    assert "no-data" in found["data"]["cifar10"]
    assert found["versions"]["fedsir"] == package.__version__
    assert found["devices"][0] == "cpu" and found["cores"] >= 1


# ---------------------------------------------------------------- in this process


def test_run_prints_a_table_and_leaves_a_folder_with_a_telling_name(fedsir: Callable[..., Any]) -> None:
    done = fedsir("run", "--method", "fedavg", *TINY, *ONE)
    assert done.code == 0, done.err
    [folder] = Path("runs").iterdir()
    assert folder.name.startswith("digits-fedavg-a2-n0.8-s0-")
    assert done.out.splitlines()[-1] == f"run folder: {folder}"
    assert json.loads((folder / "result.json").read_text())["method"] == "fedavg"


def test_shown_settings_run_back(fedsir: Callable[..., Any]) -> None:
    words = ["--method", "fedavg", *TINY, "--seed", "5", "--alpha", "0.7", "--noise-rate", "0.3"]
    shown = fedsir("show", *words)
    assert shown.code == 0
    Path("shown.toml").write_text(shown.out)
    assert tomllib.loads(shown.out) == json.loads(fedsir("show", *words, "--json").out)
    by_words = last_json(fedsir("run", *words, *ONE, "--out", "a", "--json").out)
    by_file = last_json(fedsir("run", "shown.toml", *ONE, "--out", "b", "--json").out)
    assert by_file["model_sha256"] == by_words["model_sha256"]
    assert Path("a/config.toml").read_bytes() == Path("b/config.toml").read_bytes() == shown.out.encode()
    # The recipe's number of rounds gives way to the command line's.
    assert json.loads(fedsir("show", "shown.toml", "--rounds", "4", "--json").out)["rounds"] == 4


def test_plan_tells_without_running(fedsir: Callable[..., Any]) -> None:
    words = ["plan", *TINY, "--seed", "1", *ONE]
    planned = last_json(fedsir(*words, "--json").out)
    assert sum(planned["client_sizes"].values()) == planned["n_train"] == 60
    assert set(planned["noise_by_client"]) == set(planned["clean_clients"]) | set(planned["noisy_clients"])
    assert planned["estimate"]["seconds"] > 0
    done = fedsir(*words)
    assert done.code == 0
    assert done.out.splitlines()[0] == "digits: 60 training images, 20 test images"
    noisy = [line.split()[0] for line in done.out.splitlines() if " noisy " in line]
    assert noisy == planned["noisy_clients"]
    assert not Path("runs").exists()


@pytest.mark.parametrize("kind", ["methods", "datasets", "recipes", "models"])
def test_lists(fedsir: Callable[..., Any], kind: str) -> None:
    known = {
        "methods": set(known_methods()),
        "datasets": {"digits", "cifar10", "cifar100", "PATH"},
        "recipes": set(recipes.recipe_names()),
        "models": {"small_cnn", "resnet18"},
    }[kind]
    listed = last_json(fedsir("list", kind, "--json").out)
    assert known <= set(listed)
    assert all(listed.values())
    lines = fedsir("list", kind).out.splitlines()
    assert [line.split()[0] for line in lines] == list(listed)


def test_doctor_in_words(fedsir: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedsir.cli.doctor._is_deterministic", lambda: True)
    done = fedsir("doctor")
    assert done.code == 0
    assert "the same bytes with 1 and 2 workers" in done.out
    assert f"fedsir        {package.__version__}" in done.out.splitlines()
    monkeypatch.setattr("fedsir.cli.doctor._is_deterministic", lambda: False)
    assert fedsir("doctor").code == 1


def test_demo_sets_two_methods_side_by_side(fedsir: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def smaller(recipe: str, tree: dict[str, Any]) -> Any:
        data = tree["data"] | {"n_train": 60, "n_test": 20, "n_clients": 3}
        return recipes.resolve(recipe, tree | {"rounds": 1, "data": data})

    monkeypatch.setattr("fedsir.cli.demo.resolve", smaller)
    words = ["demo", "--seed", "3", "--noise-rate", "0.5", "--out", "d", *ONE]
    done = fedsir(*words)
    assert done.code == 0, done.err
    assert [line.split()[0] for line in done.out.splitlines()[1:3]] == ["fedavg", "fedsir"]
    assert sorted(path.name for path in Path("d").iterdir()) == ["fedavg-n0.5-s3", "fedsir-n0.5-s3"]
    results = last_json(fedsir(*words, "--json").out)
    assert list(results) == ["fedavg", "fedsir"]
    for result in results.values():
        assert json.loads(Path(result["run_dir"], "result.json").read_text()) == result
    plans = [json.loads(Path(result["run_dir"], "data.json").read_text()) for result in results.values()]
    assert plans[0] == plans[1]


def test_own_data_are_called_by_their_own_names(fedsir: Callable[..., Any], npz: Callable[..., Path]) -> None:
    clients = [f"[/site {i % 2}] são" for i in range(60)]
    path = npz(clients=clients)
    done = fedsir("run", "--dataset", path, "--rounds", "1", *ONE, "--out", "run", "--json")
    assert done.code == 0, done.err
    result = last_json(done.out)
    assert sorted(result["clean_clients"] + result["noisy_clients"]) == sorted(set(clients))
    assert result["identification_accuracy"] is None
    for file in Path("run").glob("*.json"):
        last_json(" ".join(file.read_text(encoding="utf-8").splitlines()))
    assert fedsir("plan", "--dataset", path, *ONE).code == 0


def test_a_client_with_one_class_is_not_assessed(fedsir: Callable[..., Any], npz: Callable[..., Path]) -> None:
    labels = [0 if i % 4 == 3 else (i // 4) % 3 for i in range(60)]  # site-3 has one class
    words = ["run", "--dataset", npz(labels=labels), "--rounds", "1", *ONE, "--out", "run"]
    result = last_json(fedsir(*words, "--set", "method.identify.split=always", "--json").out)
    (reason,) = result["not_assessed"].values()
    assert list(result["not_assessed"]) == ["site-3"]
    assert "site-3" not in [*result["clean_clients"], *result["noisy_clients"]]
    assert result["two_groups"] == "asked for"
    stored = json.loads(Path("run/identification.json").read_text())["split"]
    assert stored["not_assessed"] == result["not_assessed"]
    (verdict,) = (
        line for line in fedsir(*words, "--set", "method.identify.split=always").out.splitlines() if "called" in line
    )
    assert f"not assessed ({reason}): site-3" in verdict
    assert "two groups were asked for, not found" in verdict


def test_help_and_version(fedsir: Callable[..., Any]) -> None:
    text = fedsir("--help").out
    for command in ("run", "plan", "demo", "list", "show", "doctor"):
        assert f"  {command} " in text
    assert fedsir("--version").out == f"fedsir {package.__version__}\n"
    assert "--set" in fedsir("run", "--help").out


GUESSING = """
from fedsir.methods.fedavg import FedAvg

class Guessing(FedAvg):
    name = "guessing"

    def round(self, t, state, fed):
        fed.record(noise_rate_by_client={client: 0.25 for client in fed.participants})
        return super().round(t, state, fed)
"""


def test_estimated_noise_rates_are_scored(fedsir: Callable[..., Any]) -> None:
    Path("guessing.py").write_text(GUESSING)
    rate = ["--noise-rate", "0.1-0.9", "--set", "data.noisy_clients=all"]
    words = ["run", "--method", "guessing.py:Guessing", *TINY, *ONE, *rate, "--out", "run"]
    done = fedsir(*words)
    assert done.code == 0, done.err
    true = json.loads(Path("run/data.json").read_text())["noise_by_client"]
    error = last_json(fedsir(*words, "--json").out)["noise_rate_error"]
    assert error["max"] == pytest.approx(max(abs(rate - 0.25) for rate in true.values()))
    assert (error["n_clients"], len(set(true.values()))) == (3, 3)
    told = (
        f"estimated the noise rate of 3 clients: off by {error['mean']:.3f} on average, by {error['max']:.3f} at most"
    )
    assert told in done.out
    assert last_json(fedsir("plan", *words[3:-2], "--json").out)["noise_by_client"] == true
