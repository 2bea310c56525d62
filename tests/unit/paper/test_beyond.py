"""The table beyond the paper: its conditions, which runs it shares with others, and what it says in all."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fedsir.errors import ConfigError
from fedsir.paper import rendering
from fedsir.paper.conditions import Condition
from fedsir.paper.gain import gain_of
from fedsir.paper.reproduction import Reproduction
from fedsir.paper.scales import SCALES
from fedsir.paper.tables import TABLES, Selection, cells
from fedsir.paper.variants import Variant

RESULTS = Path(__file__).parents[3] / "results"
PLUS, *OTHERS = TABLES["beyond"].variants
# The table is what is tested, not the preset: another one makes it, too.
TABLE = replace(
    TABLES["beyond"], variants=(Variant("plus", PLUS.title, "fedsir", {"method": {"preset": "paper"}}), *OTHERS)
)
MIXED = (0.1, 0.9)


def test_the_first_row_is_fedsir_by_the_preset_plus() -> None:
    assert (PLUS.method, PLUS.settings) == ("fedsir", {"method": {"preset": "plus"}})


@pytest.mark.parametrize(("scale", "usual", "others"), [("cpu", 0.5, (0.1, 2.0)), ("smoke", 2.0, (0.1, 0.5))])
def test_conditions_and_their_settings(scale: str, usual: float, others: tuple[float, float]) -> None:
    found = cells(TABLE, SCALES[scale], Selection(methods=("fedavg",)))
    assert [cell.condition.title for cell in found] == [
        f"α = {usual:g}, noise rate 0.3",
        f"α = {usual:g}, noise rate 0.6",
        f"α = {usual:g}, noise rate 0.9",
        f"α = {usual:g}, asymmetric noise rate 0.4",
        f"α = {usual:g}, noise rates 0.1 to 0.9",
        *(f"α = {alpha:g}, noise rate 0.6" for alpha in others),
    ]
    data = [cell.configs[0].data for cell in found]
    assert [(d.alpha, d.noise, d.noise_rate) for d in data[2:5]] == [
        (usual, "symmetric", 0.9),
        (usual, "asymmetric", 0.4),
        (usual, "symmetric", MIXED),
    ]
    assert [d.noise_draw for d in data[2:5]] == ["authors" if scale == "cpu" else "keyed", "keyed", "keyed"]
    assert len({cell.configs[0].sha256 for cell in found}) == 7


def test_clean_labels_are_run_once_per_split() -> None:
    found = cells(TABLE, SCALES["cpu"], Selection(methods=("fedavg-all-clean",)))
    assert [cell.condition for cell in found] == [Condition(alpha, None) for alpha in (0.5, 0.1, 2.0)]


@pytest.mark.parametrize(
    ("chosen", "titles"),
    [
        (Selection(alphas=(0.1, 2.0)), ["α = 0.1, noise rate 0.6", "α = 2, noise rate 0.6"]),
        (Selection(noise_rates=(0.4,)), ["α = 0.5, asymmetric noise rate 0.4"]),
        (
            Selection(alphas=(0.5,), noise_rates=(0.9, MIXED)),
            ["α = 0.5, noise rate 0.9", "α = 0.5, noise rates 0.1 to 0.9"],
        ),
    ],
)
def test_a_part_of_it(chosen: Selection, titles: list[str]) -> None:
    found = cells(TABLE, SCALES["cpu"], replace(chosen, methods=("fedsir",)))
    assert [cell.condition.title for cell in found] == titles


@pytest.mark.parametrize(
    ("chosen", "says"),
    [
        (Selection(alphas=(1.0,)), "beyond at scale cpu has no α = 1. It has α = 0.5, noise rate 0.3; α"),
        (Selection(noise_rates=(0.6, 0.7)), "has no noise rate 0.7. It has"),
        (Selection(alphas=(0.1, 2.0), noise_rates=(MIXED,)), "has no such pair of them. It has"),
    ],
)
def test_conditions_that_it_has_not_are_refused(chosen: Selection, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        cells(TABLE, SCALES["cpu"], chosen)


def found_rows(scale: str, folder: str, chosen: Selection) -> list[dict[str, int]]:
    """Return, per condition, the number of committed runs of each row that has some."""
    reproduction = Reproduction.of(TABLE, SCALES[scale], chosen, RESULTS / folder)
    return [{line.name: len(line.runs) for line in block.lines if line.runs} for block in reproduction.filled().blocks]


def test_runs_of_other_tables_are_found() -> None:
    rows = ("fedavg", "fedelc", "fednoro", "fedsir", "pruning", "fedavg-all-clean")
    rates = (0.3, 0.6, 0.9)
    assert found_rows("cpu", "cifar10-cpu", Selection((0.5,), rates)) == [dict.fromkeys(rows, 1)] * 3
    # Of the sweep on digits, which has every row but this: FedAvg with clean clients only is "no noise" there.
    on_digits = found_rows("digits", "digits", Selection((2.0,), rates, seeds=(0, 1, 2)))
    assert on_digits == [dict.fromkeys(rows[:-1], 3)] * 3


Finish = Callable[..., None]


@pytest.fixture
def filled_in(tmp_path: Path, finish_runs: Finish) -> Reproduction:
    chosen = Selection(alphas=(0.5,), noise_rates=(0.6, MIXED), seeds=(0, 1))
    reproduction = Reproduction.of(TABLE, SCALES["cpu"], chosen, tmp_path)
    errors = {"noise_rate_error": {"mean": 0.02, "max": 0.05, "n_clients": 10}}
    finish_runs(reproduction, "plus", 720, 720, **errors)
    finish_runs(reproduction, "fedsir", 690, 710)
    finish_runs(reproduction, "fednoro", 710, 710)
    finish_runs(reproduction, "fedavg-all-clean", 900, 900)
    finish_runs(reproduction, "plus", 690, 690, noise_rate=MIXED, **errors)
    finish_runs(reproduction, "fedsir", 650, 650, noise_rate=MIXED)
    finish_runs(reproduction, "pruning", 700, 700, noise_rate=MIXED)
    return reproduction


def test_the_best_rival_is_the_base(filled_in: Reproduction) -> None:
    blocks = filled_in.filled().blocks
    bases = [[line.name for line in block.lines if line.ours and line.ours.is_base] for block in blocks]
    assert bases == [["fednoro"], ["pruning"]]
    differences = [line.ours.difference for block in blocks if (line := block.line("plus")) and line.ours]
    assert differences == [pytest.approx(0.01), pytest.approx(-0.01)]


def test_what_it_gains_in_all(filled_in: Reproduction) -> None:
    gain = gain_of(TABLE, filled_in.filled().blocks)
    assert gain is not None
    assert (gain.mean, gain.n_conditions) == (pytest.approx((0.02 + 0.04) / 2), 2)
    assert gain.gap_closed == pytest.approx((0.02 + 0.04) / (0.2 + 0.25))
    assert (gain.worst, gain.worst_condition) == (pytest.approx(-0.01), "α = 0.5, noise rates 0.1 to 0.9")
    assert rendering.gain_line(filled_in.filled()) == (
        "FedSIR plus minus FedSIR: +3.00 on average over 2 condition(s); 13% of the gap to clean labels closed; worst "
        "to the best of FedSIR, FedNoRo and Pruning: −1.00 (α = 0.5, noise rates 0.1 to 0.9)."
    )
    grid = Reproduction.of(TABLES["ablation"], SCALES["cpu"], Selection(), filled_in.out).filled()
    assert gain_of(grid.table, grid.blocks) is None


def test_only_seeds_that_both_have_count(tmp_path: Path, finish_runs: Finish) -> None:
    chosen = Selection(alphas=(0.5,), noise_rates=(0.6,), seeds=(0, 1))
    reproduction = Reproduction.of(TABLE, SCALES["cpu"], chosen, tmp_path)
    finish_runs(reproduction, "plus", 720)
    finish_runs(reproduction, "fedsir", 700, 900)
    finish_runs(reproduction, "fednoro", 705)
    gain = gain_of(TABLE, reproduction.filled().blocks)
    assert gain is not None
    assert (gain.mean, gain.gap_closed) == (pytest.approx(0.02), None)
    assert gain.worst == pytest.approx(0.015)  # to FedNoRo, as FedSIR's second seed says nothing about it


def test_what_is_behind_closes_no_gap(tmp_path: Path, finish_runs: Finish) -> None:
    chosen = Selection(alphas=(0.5,), noise_rates=(0.6,), seeds=(0,))
    reproduction = Reproduction.of(TABLE, SCALES["cpu"], chosen, tmp_path)
    for name, right in (("plus", 690), ("fedsir", 700), ("fedavg-all-clean", 900)):
        finish_runs(reproduction, name, right)
    line = rendering.gain_line(reproduction.filled(), reproduction.filled().blocks[0])
    assert line == "FedSIR plus minus FedSIR: −1.00."


def test_its_files(filled_in: Reproduction, tmp_path: Path) -> None:
    names = [path.name for path in filled_in.write()]
    assert names[-2:] == ["beyond-cpu-a0.5-n0.6.svg", "beyond-cpu-a0.5-n0.1-0.9.svg"]
    markdown = (tmp_path / "beyond-cpu.md").read_text()
    assert "| method | n | ours | sd | diff. | ident. | label noise | rate error |" in markdown
    assert "| FedSIR plus | 2 | 72.00 ± 3.00 | 0.00 | +1.00* | – | 60.0 → 50.0 | 2.0 (5.0) |" in markdown
    assert "| FedNoRo | 2 | 71.00 ± 3.00 | 0.00 | – | – | 60.0 → 50.0 | – |" in markdown
    assert "diff.: to the best of FedSIR, FedNoRo and Pruning" in markdown and "gap:" not in markdown
    # 2 points of the 20 from FedSIR to clean labels, and 4 of 25.
    assert "FedSIR plus minus FedSIR: +2.00; 10% of the gap to clean labels closed.\n" in markdown
    assert "FedSIR plus minus FedSIR: +4.00; 16% of the gap to clean labels closed.\n" in markdown
    assert "## In all\n\nFedSIR plus minus FedSIR: +3.00" in markdown
    latex = (tmp_path / "beyond-cpu.tex").read_text()
    assert r"$\alpha$ & method & 60\% & 10--90\% \\" in latex
    assert r"0.5 & FedSIR plus & \textbf{72.00$\pm$3.00} & 69.00$\pm$3.00 \\" in latex
    stored = json.loads((tmp_path / "beyond-cpu.json").read_text())
    assert [round(gain["gap_closed"], 6) for gain in stored["gains"]] == [0.1, 0.16]
    assert stored["gain"]["n_conditions"] == 2 and "standings" not in stored
    cell = next(c for c in stored["cells"] if (c["method"], c["noise_rate"]) == ("plus", "0.1-0.9"))
    assert (cell["noise"], cell["noise_rate_error"], cell["largest_noise_rate_error"]) == ("symmetric", 0.02, 0.05)
    assert "paper_accuracy" not in cell
