"""Options that commands share: workers, sizes and times for people, settings from words."""

from pathlib import Path
from typing import Any

import pytest

from fedsir.cli import options
from fedsir.cli.terminal import size
from fedsir.errors import ConfigError
from fedsir.runs.progress import duration

WORDS = ("method", "dataset", "alpha", "noise_rate", "rounds", "seed", "assignments", "data_dir", "download")
NOTHING: dict[str, Any] = dict.fromkeys(WORDS)


def settings(recipe: str | None = None, **given: Any) -> dict[str, Any]:
    return options.settings(recipe, **NOTHING | given).tree()


def test_words_become_settings() -> None:
    tree = settings(method="fedavg", alpha=0.5, noise_rate=0.0, rounds=3, seed=0, assignments=["data.n_train=100"])
    assert (tree["rounds"], tree["seed"], tree["method"]["name"]) == (3, 0, "fedavg")
    assert (tree["data"]["alpha"], tree["data"]["noise_rate"], tree["data"]["n_train"]) == (0.5, 0.0, 100)


def test_a_zero_is_a_word_too() -> None:
    assert settings(seed=0, noise_rate=0.0, assignments=["seed=0"])["data"]["noise_rate"] == 0.0
    with pytest.raises(ConfigError, match="rounds"):
        settings(rounds=0)
    assert settings(rounds=0, assignments=["rounds=5"])["rounds"] == 5  # an assignment is stronger than an option


def test_code_cannot_be_named_on_a_command_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.name: 'os\.path:join' names code to import"):
        settings(assignments=["model.name=os.path:join"])
    recipe = tmp_path / "own.toml"
    recipe.write_text("[model]\nname = 'os:system'\n[method]\nname = 'fedavg'\n")
    with pytest.raises(ConfigError, match="only the Python interface"):
        settings(str(recipe))


def test_workers_are_as_told_or_one_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options.n_workers(3) == 3
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 5}, raising=False)
    assert options.n_workers(None) == 3
    for given in (0, -1):
        with pytest.raises(ConfigError, match=f"workers: must be at least 1.*{given}"):
            options.n_workers(given)


@pytest.mark.parametrize(
    ("n", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5e12, "5.0 TB"), (5e16, "50000.0 TB")],
)
def test_sizes_for_people(n: float, text: str) -> None:
    assert size(n) == text


@pytest.mark.parametrize(("n", "text"), [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (5400, "1.5 h"), (90000, "25.0 h")])
def test_times_for_people(n: float, text: str) -> None:
    assert duration(n) == text
