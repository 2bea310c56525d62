"""`fedsir reproduce` and `fedsir sweep` as a user meets them: files, resuming, splitting, and what is refused."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedsir.cli import INTERRUPTED
from fedsir.models.config import IMAGENET_FILES
from fedsir.paper.tables import TABLES
from fedsir.runs.config import RunConfig
from fedsir.sweeps import sweep as sweeps

Fedsir = Callable[..., Any]
Refused = Callable[..., str]

SWEEP = """
recipe = "digits"
[settings]
rounds = 2
data = { n_train = 60, n_test = 20, n_clients = 3 }
[[grid]]
method.name = ["fedavg", "fedprox"]
"""


def test_a_table_made_in_two_parts_then_put_together(fedsir: Fedsir, tmp_path: Path) -> None:
    for method in ("fedavg", "fedprox"):
        assert fedsir("reproduce", "table-cifar10", "--methods", method, "--out", "parts").code == 0
    whole = fedsir("reproduce", "table-cifar10", "--methods", "fedavg,fedprox,fedsir", "--out", "parts", "--no-run")
    assert whole.code == 0, whole.err
    assert "α = 2, noise rate 0.8" in whole.out and "FedProx" in whole.out
    assert "not how good a method is" in " ".join(whole.out.split())
    told = fedsir("reproduce", "table-cifar10", "--methods", "fedavg,fedprox", "--out", "parts", "--no-run", "--json")
    table = json.loads(told.out.splitlines()[-1])
    assert [cell["method"] for cell in table["cells"]] == ["fedavg", "fedprox"]
    assert all(0 < cell["accuracy"] < 1 and cell["paper_accuracy"] is None for cell in table["cells"])
    assert all((tmp_path / file).stat().st_size > 0 for file in table["files"])
    assert {Path(file).suffix for file in table["files"]} == {".md", ".tex", ".csv", ".json", ".svg"}


def test_a_figure_without_runs(fedsir: Fedsir) -> None:
    done = fedsir("reproduce", "figure-similarity", "--noise-rate", "0,0.8", "--out", "figure", "--json")
    told = json.loads(done.out.splitlines()[-1])
    means = [line["mean"] for line in told["off_diagonal"]]
    assert means[1] > means[0] + 0.05
    assert "wrong labels" in Path("figure/figure-similarity-smoke.svg").read_text()
    stamp = Path("figure/figure-similarity-smoke.npz").stat().st_mtime_ns
    assert fedsir("reproduce", "figure-similarity", "--noise-rate", "0,0.8", "--out", "figure").code == 0
    assert Path("figure/figure-similarity-smoke.npz").stat().st_mtime_ns == stamp  # drawn again, not computed again


def test_hours_before_anything_is_run(fedsir: Fedsir) -> None:
    done = fedsir("reproduce", "relabel-rules", "--seeds", "0,1", "--dry-run", "--workers", "2")
    last = done.out.splitlines()[-1]
    assert re.fullmatch(r"6 of 6 runs to do: about \d+ s \(0\.\d\d hours\) with 2 worker\(s\)", last)
    assert not Path("reproduction").exists()


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[RunConfig]:
    """Return the settings of runs that would be timed; each is said to take a minute."""
    configs = []

    def plan_run(config: RunConfig, **_: Any) -> dict[str, Any]:
        configs.append(config)
        return {"estimate": {"seconds": 60.0}}

    monkeypatch.setattr("fedsir.sweeps.estimate.plan_run", plan_run)
    return configs


def test_a_dry_run_times_equal_work_once(fedsir: Fedsir, timed: list[RunConfig]) -> None:
    words = ["reproduce", "table-cifar10", "--scale", "paper", "--dry-run", "--workers", "1", "--json"]
    told = json.loads(fedsir(*words).out)
    assert len(told["runs"]) == 3 * (7 * 12 + 1)
    assert told["hours"] == pytest.approx(len(told["runs"]) / 60)
    assert len({config.method.batch_size for config in timed}) == len(timed)  # not once per run, method or noise rate


def test_a_dry_run_of_many_runs_is_a_row_per_method(fedsir: Fedsir, timed: list[RunConfig]) -> None:
    Path("sweep.toml").write_text(f"{SWEEP}seed = {list(range(600))}\n")
    done = fedsir("sweep", "sweep.toml", "--dry-run", "--workers", "2")
    assert [line.split() for line in done.out.splitlines()[1:3]] == [
        ["fedavg", "600", "600", "10.0", "h"],
        ["fedprox", "600", "600", "10.0", "h"],
    ]
    assert done.out.splitlines()[-1].startswith("1,200 of 1,200 runs to do: about 10.0 h")
    told = json.loads(fedsir("sweep", "sweep.toml", "--dry-run", "--json").out)
    assert len(told["runs"]) == 1200
    assert len(timed) == 2  # once per command


@pytest.mark.parametrize(("words", "model"), [((), "strided_cnn"), (("--data-dir", "data"), "resnet18")])
def test_own_photos_have_the_same_model_in_every_command(
    fedsir: Fedsir, timed: list[RunConfig], npz: Callable[..., Path], words: tuple[str, ...], model: str
) -> None:
    Path("data").mkdir()
    Path("data", IMAGENET_FILES[0]).touch()
    own = npz(images=np.zeros((60, 32, 32), np.uint8))
    Path("sweep.toml").write_text(f'[[grid]]\nmethod.name = ["fedavg"]\ndata.dataset = ["{own}"]\n')
    assert fedsir("sweep", "sweep.toml", "--dry-run", *words).code == 0
    assert [config.model.name for config in timed] == [model]
    assert json.loads(fedsir("show", "--dataset", own, *words, "--json").out)["model"]["name"] == model


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("table-cifar11",), "Did you mean 'table-cifar100'|Did you mean 'table-cifar10'"),
        (("ablation", "--scale", "papr"), "Did you mean 'paper'"),
        (("ablation", "--methods", "fedavg"), "this table has no 'fedavg'"),
        (("ablation", "--noise-rate", "much"), "--noise-rate: give values"),
        (("ablation", "--noise-rate", "1.5"), "noise_rate"),
        (("ablation", "--alpha", "-1"), "alpha"),
        (("ablation", "--seeds", ","), "--seeds: give values"),
        (("ablation", "--no-run"), "leave out --no-run"),
        (("figure-similarity", "--seeds", "0,1"), "one --alpha"),
        (("figure-similarity", "--dry-run"), "has no runs"),
    ],
)
def test_what_is_refused(refused: Refused, words: tuple[str, ...], names: str) -> None:
    line = refused("reproduce", *words)
    assert any(name in line for name in names.split("|")), line


def test_missing_data_stop_a_table_at_once(fedsir: Fedsir, tmp_path: Path) -> None:
    done = fedsir("reproduce", "ablation", "--scale", "cpu", "--noise-rate", "0.9", "--workers", "1")
    assert (done.code, done.out) == (2, "")
    first, one, two, last = done.err.splitlines()
    assert first == "7 runs" and one.startswith("1/7 ") and two.startswith("2/7 ")  # of seven
    assert last.startswith("fedsir: No run worked, and two failed for the same reason: cifar10 is not in the data dir")
    assert str(tmp_path / "no-data") in last


def test_a_sweep_is_run_compared_and_not_run_again(fedsir: Fedsir, tmp_path: Path) -> None:
    Path("sweep.toml").write_text(SWEEP)
    dry = fedsir("sweep", "sweep.toml", "--dry-run")
    assert "2 of 2 runs to do" in dry.out
    done = fedsir("sweep", "sweep.toml", "--workers", "2", "--json")
    told = json.loads(done.out.splitlines()[-1])
    assert len(told["results"]) == 2 and told["failures"] == {}
    (made,) = told["provenance"]
    assert made["device"] == "cpu" and made["versions"]["torch"] == torch.__version__
    assert fedsir("compare", *sorted(Path("runs").iterdir())).code == 0
    again = fedsir("sweep", "sweep.toml")
    assert "2 runs, 2 finished before" in again.err
    assert "2 of 2 runs are in runs" in again.out
    assert "0 of 2 runs to do" in fedsir("sweep", "sweep.toml", "--dry-run").out


def test_a_run_that_fails_is_told_and_the_code_says_so(fedsir: Fedsir) -> None:
    Path("sweep.toml").write_text(SWEEP + '[[grid]]\nmethod.name = ["rhfl"]\ndata.public = ["cifar10"]\n')
    done = fedsir("sweep", "sweep.toml")
    assert done.code == 2
    assert "2 of 3 runs are in runs" in done.out
    assert done.err.splitlines()[-1].startswith("fedsir: 1 run(s) failed: digits-rhfl")


def test_code_in_a_sweep_file_needs_trust(refused: Refused, fedsir: Fedsir, tmp_path: Path) -> None:
    Path("mine.py").write_text(
        "from fedsir.methods.fedavg import FedAvg\n\n\nclass Mine(FedAvg):\n    name = 'mine'\n    summary = 's'\n"
    )
    Path("sweep.toml").write_text(SWEEP.replace('["fedavg", "fedprox"]', '["mine.py:Mine"]'))
    assert "if you trust it, say so with --method mine.py:Mine" in refused("sweep", "sweep.toml")
    assert fedsir("sweep", "sweep.toml", "--method", "mine.py:Mine").code == 0


def test_a_sweep_cannot_import_a_model(refused: Refused) -> None:
    Path("sweep.toml").write_text(SWEEP + '[[grid]]\nmodel.name = ["os:abort"]\n')
    assert "names code to import" in refused("sweep", "sweep.toml")


def test_ctrl_c_says_that_it_goes_on(fedsir: Fedsir, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sweep.toml").write_text(SWEEP)

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "run_jobs", interrupted)
    done = fedsir("sweep", "sweep.toml")
    assert done.code == INTERRUPTED
    assert "the same command goes on from the last round of each run" in done.err


def test_the_table_beyond_the_paper(fedsir: Fedsir, refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    plus, *others = TABLES["beyond"].variants
    plus = replace(plus, settings={"method": {"preset": "paper"}})  # the table is tried, not the preset
    monkeypatch.setitem(TABLES, "beyond", replace(TABLES["beyond"], variants=(plus, *others)))
    part = ("reproduce", "beyond", "--alpha", "2", "--noise-rate", "0.4,0.1-0.9", "--methods", "fedavg")
    dry = json.loads(fedsir(*part, "--seeds", "0,1", "--dry-run", "--json").out)
    assert [run["run"].rpartition("-")[0] for run in dry["runs"]] == [
        *("digits-fedavg-a2-asymmetric-n0.4-s0", "digits-fedavg-a2-asymmetric-n0.4-s1"),
        *("digits-fedavg-a2-n0.1-0.9-s0", "digits-fedavg-a2-n0.1-0.9-s1"),
    ]
    done = fedsir(*part, "--workers", "1")
    assert done.code == 0, done.err
    assert "α = 2, asymmetric noise rate 0.4" in done.out and "α = 2, noise rates 0.1 to 0.9" in done.out
    told = json.loads(fedsir("reproduce", "beyond", "--alpha", "2", "--no-run", "--json").out.splitlines()[-1])
    found = {cell["condition"]: cell["method"] for cell in told["cells"] if cell["accuracy"] is not None}
    assert list(found.values()) == ["fedavg", "fedavg"] and told["gain"] is None
    assert "has no noise rate 0.5" in refused("reproduce", "beyond", "--noise-rate", "0.5")
    assert "--noise-rate: give values" in refused("reproduce", "ablation", "--noise-rate", "0.1-0.9")
