"""Sweep files: every combination, in order; anything amiss is one line that names the file."""

from pathlib import Path

import pytest

from fedsir.errors import ConfigError
from fedsir.sweeps.sweep import jobs_for
from fedsir.sweeps.sweep_file import read_sweep

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
        ("[[grid]]\nseed = []", "seed in a grid is empty"),
        ("[[grid]]", "a grid is empty"),
        ("[[grid]]\nseed = [0]\n[[grid]]\n[grid.data]", "a grid is empty"),
        ("grid = []", "there is no .*grid"),
        ("a = " + "[" * 5000, "nested too deeply"),
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


EVIL = "from pathlib import Path\nPath(__file__).with_name('was-run').touch()\n"
MINE = "from fedsir.methods.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    name = 'mine'\n    summary = 's'\n"


def test_no_code_is_run_that_was_not_named(file: Path, tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(EVIL + MINE)
    name = f"{tmp_path / 'evil.py'}:Mine"
    file.write_text(f'[[grid]]\nmethod.name = ["fedavg", "{name}"]\n')
    with pytest.raises(ConfigError, match=r"would run the code in .*evil\.py:Mine: if you trust it"):
        read_sweep(file)
    (tmp_path / "recipe.toml").write_text(f'[method]\nname = "fedavg"\n[per_method."{name}"]\nlr = 0.1\n')
    file.write_text(f'recipe = "{tmp_path / "recipe.toml"}"\n[[grid]]\nseed = [0]\n')
    assert [config.method.name for config in read_sweep(file)] == ["fedavg"]
    (tmp_path / "recipe.toml").write_text(f'[method]\nname = "{name}"\n')
    with pytest.raises(ConfigError, match="if you trust it"):
        read_sweep(file)
    assert not (tmp_path / "was-run").exists()
    file.write_text(f'[[grid]]\nmethod.name = ["{name}"]\n')
    assert [config.method.name for config in read_sweep(file, [name])] == [name]
    assert (tmp_path / "was-run").exists()


def test_trust_in_what_no_run_uses_is_a_mistake(file: Path) -> None:
    file.write_text(SWEEP)
    for name in ("fednoro", "fedavg", "other.py:Other"):  # nobody's, built in, nobody's
        with pytest.raises(ConfigError, match=rf"--method {name}: is no code in a file that a run of .* uses"):
            read_sweep(file, [name])
