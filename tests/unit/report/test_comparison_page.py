"""Several runs on one page."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedsir.errors import RunFolderError
from fedsir.report.comparison_page import comparison_page, row_names
from fedsir.runs.result import RunResult
from fedsir.sweeps.comparison import Row, compare, compare_groups, grouped

RESULTS = Path(__file__).resolve().parents[3] / "results"
ROW = Row("fedsir", (), (0,), 0.9, None, 0.01, True, None, None, None, None, None)


def test_runs_are_compared_with_the_first(made: RunResult, plain: RunResult) -> None:
    page = comparison_page([plain.folder, made.folder])
    assert "comparison of 2 runs" in page
    assert "Difference: to fedavg" in page
    assert page.count('data-series="') == 2  # the share of wrong labels never changes here: it is not drawn
    assert "fedsir run sir/config.toml --out sir-again" in page
    assert comparison_page([plain.folder, made.folder], against="fedsir").count("Difference: to fedsir") == 1


def test_committed_runs_have_a_page() -> None:
    page = comparison_page([RESULTS / "cifar10-cpu" / "runs"], only={"data.alpha": 0.5, "data.noise_rate": 0.6})
    assert "Who called whom noisy" in page
    assert "8 best of" in page
    assert "Wrong labels left on the really noisy clients" in page


def test_runs_under_other_conditions_are_refused() -> None:
    with pytest.raises(RunFolderError, match=r"different conditions: data\.noise_rate"):
        comparison_page([RESULTS / "digits" / "runs"])


def test_rows_have_names_that_differ() -> None:
    presets = [
        replace(ROW, settings=("method.lr=0.1", "method.preset=plus")),
        replace(ROW, settings=("method.lr=0.1", "method.preset=authors")),
        replace(ROW, settings=("method.lr=0.2", "method.preset=authors")),
        replace(ROW, method="fedavg"),
    ]
    assert row_names(presets) == [
        "fedsir preset=plus",
        "fedsir preset=authors lr=0.1",
        "fedsir preset=authors lr=0.2",
        "fedavg",
    ]


def test_groups_give_the_rows_of_compare(made: RunResult, plain: RunResult) -> None:
    folders = [plain.folder, made.folder]
    assert compare_groups(grouped(folders)) == compare(folders)
