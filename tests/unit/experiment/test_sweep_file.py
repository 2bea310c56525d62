"""Sweep files: every combination, in order; anything amiss is one line that names the file."""

from pathlib import Path

import pytest

from fedsir.errors import ConfigError
from fedsir.experiment.sweep import jobs_for
from fedsir.experiment.sweep_file import read_sweep

SWEEP = """
recipe = "digits"
[settings]
rounds = 3
data.alpha = 0.5
[[grid]]
method.name = ["fedavg", "fedsir"]
data.noise_rate = [0.3, 0.6]
[[grid]]
method.name = ["fedprox"]
seed = [0, 1]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sweep.toml"


def test_every_combination_the_last_key_fastest(file: Path) -> None:
    file.write_text(SWEEP)
    found = [(c.method.name, c.data.noise_rate, c.seed, c.rounds, c.data.alpha) for c in read_sweep(file)]
    assert found == [
        ("fedavg", 0.3, 0, 3, 0.5),
        ("fedavg", 0.6, 0, 3, 0.5),
        ("fedsir", 0.3, 0, 3, 0.5),
        ("fedsir", 0.6, 0, 3, 0.5),
        ("fedprox", 0.8, 0, 3, 0.5),
        ("fedprox", 0.8, 1, 3, 0.5),
    ]


def test_a_single_grid_may_be_a_plain_table_and_equal_runs_are_one(file: Path, tmp_path: Path) -> None:
    file.write_text('[grid]\nmethod.name = ["fedavg", "fedavg"]\n')
    configs = read_sweep(file)
    assert len(configs) == 2 and len(jobs_for(configs, tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[grd]\nseed = [0]", r"has no 'grd'\. Did you mean 'grid'"),
        ("rounds = 3\n[[grid]]\nseed = [0]", "has no 'rounds'"),
        ("[settings]\nrounds = 3", "there is no .*grid"),
        ("[[grid]]\nseed = 0", r"seed in a grid is a list of values to try, as in seed = \[0\]"),
        ("[[grid]]\nseed = []", "seed in a grid is a list"),
        ("[[grid]]\nsed = [0]", "There is no setting 'sed'"),
        ('[[grid]]\nmethod.name = ["fedser"]', "fedsir"),
        ("settings = 3\n[[grid]]\nseed = [0]", "settings is a table"),
        ("recipe = 3\n[[grid]]\nseed = [0]", "recipe is a name"),
        ("recipe = ", "is not a TOML file"),
    ],
)
def test_what_is_amiss_is_named(file: Path, text: str, reason: str) -> None:
    file.write_text(text)
    with pytest.raises(ConfigError, match=reason) as problem:
        read_sweep(file)
    assert str(file) in str(problem.value)


def test_a_missing_file(file: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_sweep(file)
