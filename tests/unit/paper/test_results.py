"""Filled tables on runs made up by hand: gaps, marks, ranks, and what they look like."""

import csv
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from fedsir.paper import rendering
from fedsir.paper.figures import noise_reduction
from fedsir.paper.reproduction import Reproduction
from fedsir.paper.scales import SCALES
from fedsir.paper.tables import TABLES, Selection

CHOSEN = Selection(
    alphas=(0.5,),
    noise_rates=(0.6,),
    methods=("fedavg", "fedelc", "fednoro", "fedsir", "fedavg-all-clean"),
    seeds=(0, 1),
)


@pytest.fixture
def reproduction(tmp_path: Path) -> Reproduction:
    return Reproduction.of(TABLES["table-cifar10"], SCALES["cpu"], CHOSEN, tmp_path)


@pytest.fixture
def finish(reproduction: Reproduction, finish_runs: Callable[..., None]) -> Callable[..., None]:
    return partial(finish_runs, reproduction)


def test_gap_marks_rank_and_margin(reproduction: Reproduction, finish: Callable[..., None]) -> None:
    finish("fedavg", 500, 540)
    finish("fedelc", 699, 699)
    finish("fedsir", 700, 700)
    finish("fedavg-all-clean", 900, 900)
    (block,) = reproduction.filled().blocks
    lines = {line.name: line for line in block.lines}
    fedavg = lines["fedavg"].ours
    assert fedavg is not None
    assert fedavg.accuracy == pytest.approx(0.52)
    assert fedavg.seed_spread == pytest.approx(0.04 / 2**0.5)
    assert fedavg.half_width == pytest.approx(0.03)  # another thing than the spread
    assert lines["fedavg"].gap == pytest.approx(0.52 - 0.7735)
    assert lines["fednoro"].ours is None and lines["fednoro"].gap is None  # not run
    # FedELC misses one image more on each seed; one resample in eight (e⁻²) has neither of them.
    assert {name: line.is_best for name, line in lines.items()} == {
        **{"fedavg": False, "fedelc": True, "fednoro": False, "fedsir": True},
        "fedavg-all-clean": False,  # shows what is possible; no method competes with it
    }
    assert fedavg.is_different is True
    ours, theirs = block.standing("fedsir", "ours"), block.standing("fedsir", "paper")
    assert ours is not None and theirs is not None
    assert (ours.rank, ours.n_methods, ours.margin) == (1, 3, pytest.approx(0.001))
    assert (theirs.rank, theirs.n_methods, theirs.margin) == (1, 3, pytest.approx(0.8355 - 0.8228))


def test_the_files_of_a_table(reproduction: Reproduction, finish: Callable[..., None], tmp_path: Path) -> None:
    finish("fedavg", 500, 540)
    finish("fedsir", 700, 702)
    written = reproduction.write()
    assert [path.name for path in written] == [
        *("table-cifar10-cpu.md", "table-cifar10-cpu.tex", "table-cifar10-cpu.csv", "table-cifar10-cpu.json"),
        "table-cifar10-cpu-a0.5-n0.6.svg",
    ]
    markdown = (tmp_path / "table-cifar10-cpu.md").read_text()
    assert "| FedAvg | 2 | 52.00 ± 3.00 | 2.83 | 77.35 ± 0.83 | −25.35 | −18.10* | – | 60.0 → 50.0 |" in markdown
    assert "| FedNoRo | – | – | – | 81.55 ± 0.72 | – | – | – | – |" in markdown
    assert "ours rank 1 of 2, +18.10 to the best other; paper rank 1 of 2, +6.20 to the best other." in markdown
    assert "seeds 0, 1" in markdown
    latex = (tmp_path / "table-cifar10-cpu.tex").read_text()
    assert r" & FedSIR & \textbf{70.10$\pm$3.00} \\" in latex and r" & FedNoRo & -- \\" in latex
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table-cifar10-cpu.csv").read_text())))
    assert [row["method"] for row in rows] == [variant.name for variant in TABLES["table-cifar10"].variants]
    assert (float(rows[0]["accuracy"]), rows[1]["accuracy"], rows[0]["seeds"]) == (pytest.approx(0.52), "", "0 1")
    stored = json.loads((tmp_path / "table-cifar10-cpu.json").read_text())
    assert len(stored["runs"]) == 4 and stored["provenance"][0]["cores"] == 2
    assert stored["standings"][0]["ours"] == {"rank": 1, "n_methods": 2, "margin": pytest.approx(0.181)}
    svg = (tmp_path / "table-cifar10-cpu-a0.5-n0.6.svg").read_text()
    assert "FedSIR" in svg and "FedNoRo" not in svg


def test_files_show_all_runs_that_are_there(
    reproduction: Reproduction, finish: Callable[..., None], finish_runs: Callable[..., None], tmp_path: Path
) -> None:
    finish("fedsir", 700, 702)
    other = Selection(alphas=(0.1,), noise_rates=(0.9, 0.95), methods=("fedavg",), seeds=(0,))
    second = Reproduction.of(TABLES["table-cifar10"], SCALES["cpu"], other, tmp_path)
    finish_runs(second, "fedavg", 400, noise_rate=0.95)
    second.write()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "table-cifar10-cpu.csv").read_text())))
    found = {(row["alpha"], row["noise_rate"], row["method"]): row["seeds"] for row in rows if row["accuracy"]}
    assert found == {("0.1", "0.95", "fedavg"): "0", ("0.5", "0.6", "fedsir"): "0 1"}
    latex = (tmp_path / "table-cifar10-cpu.tex").read_text()
    assert r"0.1 & FedAvg & -- & \textbf{40.00$\pm$3.00} \\" in latex
    assert [block.condition.noise_rate for block in second.filled().blocks] == [0.95]


def test_a_row_without_noise_makes_no_blocks_of_its_own_beside_others(
    tmp_path: Path, reproduction: Reproduction, finish: Callable[..., None]
) -> None:
    finish("fedavg-all-clean", 900)
    (alone,) = reproduction.everything().blocks
    assert rendering.heading(alone) == "α = 0.5, noise rate 0"
    assert [line.name for line in alone.lines] == ["fedavg-all-clean"]
    assert alone.lines[0].paper is not None and alone.lines[0].paper.accuracy == 0.8681
    finish("fedavg", 500)
    (block,) = reproduction.everything().blocks
    assert block.condition.noise_rate == 0.6
    assert {line.name for line in block.lines if line.runs} == {"fedavg", "fedavg-all-clean"}
    reproduction.write()
    assert [path.name for path in tmp_path.glob("*.svg")] == ["table-cifar10-cpu-a0.5-n0.6.svg"]


def test_runs_of_different_versions_are_told(reproduction: Reproduction, finish: Callable[..., None]) -> None:
    finish("fedsir", 700, 701)
    job = next(job for job in reproduction.jobs if (job.folder / "provenance.json").exists())
    path = job.folder / "provenance.json"
    path.write_text(path.read_text().replace('{"fedsir": "0"}', '{"fedsir": "1"}'))
    text = rendering.markdown(reproduction.filled())
    assert text.count("Made with") == 2
    assert "Made with fedsir 0;" in text and "Made with fedsir 1;" in text


def test_noise_reduction_is_drawn_from_the_runs_of_the_rules(tmp_path: Path, finish_runs: Callable[..., None]) -> None:
    chosen = Selection(noise_rates=(0.6, 0.9), seeds=(0, 1))
    reproduction = Reproduction.of(TABLES["relabel-rules"], SCALES["cpu"], chosen, tmp_path)
    finish_runs(reproduction, "direction", 700, 700, noise_rate=0.6, after=0.2)
    finish_runs(reproduction, "agreement", 700, noise_rate=0.9, after=0.3)
    svg, numbers = noise_reduction(reproduction.filled(), tmp_path)
    assert (svg.name, numbers.name) == ("figure-noise-reduction-cpu-a1.svg", "figure-noise-reduction-cpu.csv")
    rows = list(csv.reader(io.StringIO(numbers.read_text())))
    assert rows == [
        ["rule", "alpha", "noise_rate", "seed", "noise_before", "noise_after"],
        ["direction", "1.0", "0.6", "0", "0.6", "0.2"],
        ["direction", "1.0", "0.6", "1", "0.6", "0.2"],
        ["agreement", "1.0", "0.9", "0", "0.9", "0.3"],
    ]
    text = svg.read_text()
    assert "40.0" in text and "60.0" in text  # 0.6 - 0.2 and 0.9 - 0.3, in points
    assert "no run" in text  # of the other four cells


def test_no_run_shows_all_seeds_that_were_run_whatever_the_scale_has(
    reproduction: Reproduction, finish: Callable[..., None], tmp_path: Path
) -> None:
    finish("fedavg", 500, 540)
    finish("fedsir", 700)
    plain = Reproduction.of(TABLES["table-cifar10"], SCALES["cpu"], Selection(), tmp_path)
    (block,) = plain.of_what_is_there().filled().blocks
    assert {line.name: len(line.runs) for line in block.lines if line.runs} == {"fedavg": 2, "fedsir": 1}
    assert block.standing("fedsir", "ours") is None  # nobody else with the same seeds
    plain.write()
    lines = (tmp_path / "table-cifar10-cpu.md").read_text().splitlines()
    assert any(line.startswith("| FedAvg | 2 | 52.00 ± 3.00 | 2.83 |") for line in lines)
    one = Reproduction.of(TABLES["table-cifar10"], SCALES["cpu"], Selection(seeds=(1,)), tmp_path).of_what_is_there()
    assert [run.seed for run in one.filled().runs] == [1]  # what was asked for stays


def test_noise_that_nobody_has_is_no_reduction(tmp_path: Path, finish_runs: Callable[..., None]) -> None:
    chosen = Selection(noise_rates=(0.9,), seeds=(0, 1))
    rules = Reproduction.of(TABLES["relabel-rules"], SCALES["cpu"], chosen, tmp_path)
    finish_runs(rules, "agreement", 500, 500, noise_rate=0.9)
    for path in sorted(tmp_path.glob("runs/*/result.json"))[:1]:
        path.write_text(json.dumps(json.loads(path.read_text()) | {"noise_before": None, "noise_after": None}))
    *_, table = noise_reduction(rules.filled(), tmp_path)
    assert len(table.read_text().splitlines()) == 2  # of the other run alone
