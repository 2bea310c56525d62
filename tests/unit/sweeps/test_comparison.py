"""Runs side by side: seeds share a row, differences are paired, nothing is averaged that does not belong together."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fedsir.cli.compare import _cells
from fedsir.cli.compare import compare as compare_command
from fedsir.errors import ConfigError, RunFolderError
from fedsir.evaluate.statistics import paired_difference
from fedsir.sweeps.comparison import compare

DATA_FILE = {"sha256": "0", "class_names": ["a", "b"]}
LABELS = np.arange(200) % 10


@pytest.fixture
def write_run(tmp_path: Path) -> Any:
    def write(
        name: str, n_right: int, *, seed: int = 0, method: str = "fedavg", rows: Any = None, **settings: Any
    ) -> Path:
        """Write a run whose model is right on the first `n_right` of 200 test images."""
        folder = tmp_path / name
        folder.mkdir()
        data = {"dataset": "digits", "alpha": 2.0} | settings.pop("data", {})
        tree = {"seed": seed, "rounds": 5, "data": data, "method": {"name": method, **settings}}
        (folder / "config.toml").write_text(tomli_w.dumps(tree))
        result = {
            "method": method,
            "accuracy": n_right / 200,
            "accuracy_half_width": 0.05,
            "seconds": 1.0,
            "identification_accuracy": None if method == "fedavg" else 0.9,
            "noise_before": 0.6,
            "noise_after": 0.3,
            "model_sha256": "0",
        }
        (folder / "result.json").write_text(json.dumps(result))
        predicted = np.where(np.arange(200) < n_right, LABELS, -1)
        rows = {} if rows is None else {"rows": rows}
        np.savez(folder / "predictions.npz", predicted=predicted, labels=LABELS, **rows)
        return folder

    return write


def test_seeds_share_a_row_and_their_spread_is_not_the_images(write_run: Any) -> None:
    folders = [write_run(f"a{seed}", n, seed=seed) for seed, n in enumerate((100, 120))]
    (row,) = compare(folders)
    assert (row.seeds, row.settings, row.difference) == ((0, 1), (), None)
    assert row.accuracy == pytest.approx(0.55)
    assert row.seed_spread == pytest.approx(0.05 * 2**0.5)  # of 0.5 and 0.6, n - 1
    assert row.half_width == pytest.approx(0.05)


def test_a_difference_is_marked_only_where_the_images_support_it(write_run: Any) -> None:
    base = write_run("base", 100)
    rows = compare([base, write_run("same", 101, method="fedprox"), write_run("more", 140, method="fedsir")])
    assert [row.method for row in rows] == ["fedavg", "fedprox", "fedsir"]
    assert rows[1].difference == pytest.approx(0.005) and rows[1].is_different is False
    assert rows[2].difference == pytest.approx(0.2) and rows[2].is_different is True
    assert (rows[0].identification, rows[2].identification) == (None, 0.9)


def test_only_seeds_that_both_have_are_paired(write_run: Any) -> None:
    base = [write_run("b0", 100, seed=0), write_run("b1", 20, seed=1)]
    rows = compare([*base, write_run("m0", 140, seed=0, method="fedsir")])
    assert rows[1].difference == pytest.approx(0.2)  # 140 against 100, not against the mean of 100 and 20
    (_, alone) = compare([base[1], write_run("m7", 140, seed=7, method="fedsir")])
    assert (alone.difference, alone.is_different) == (None, None)


def test_models_of_ones_own_are_worth_their_mean(write_run: Any) -> None:
    base, personal = write_run("base", 100), write_run("personal", 150, method="rhfl")
    right = np.stack([np.where(np.arange(200) < n, LABELS, -1) for n in (100, 200)])
    np.savez(personal / "predictions.npz", predicted=right, labels=LABELS)
    rows = compare([base, personal])
    assert rows[1].difference == pytest.approx(0.25)  # half of the models are right on the other hundred images


def test_settings_that_differ_are_named_and_never_averaged(write_run: Any) -> None:
    rows = compare([write_run("a", 100), write_run("b", 110, lr=0.1), write_run("c", 120, data={"alpha": 0.5})])
    assert [row.settings for row in rows] == [
        ("data.alpha=2.0",),
        ("data.alpha=2.0", "method.lr=0.1"),
        ("data.alpha=0.5",),
    ]


def test_what_cannot_be_compared_is_refused(write_run: Any, tmp_path: Path) -> None:
    run = write_run("a", 100)
    with pytest.raises(RunFolderError, match="one data set at a time"):
        compare([run, write_run("b", 100, data={"dataset": "cifar10"})])
    with pytest.raises(RunFolderError, match="the same run twice"):
        compare([run, run])
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunFolderError, match="is not a run folder"):
        compare([run, tmp_path / "empty"])
    unfinished = write_run("c", 100, seed=3)
    (unfinished / "result.json").unlink()
    with pytest.raises(RunFolderError, match="not finished: go on with"):
        compare([run, unfinished])


def test_latex_escapes_what_latex_reads(write_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    compare_command([write_run("a", 100, method="my_method"), write_run("b", 140, method="fedsir")], latex=True)
    text = capsys.readouterr().out.strip()
    assert text.startswith(r"\begin{tabular}{lrrrrrrr}") and text.endswith(r"\end{tabular}")
    assert r"my\_method & 1 & 50.0\% & 5.0\% & -- & -- & 90\% & 60.0\% $\to$ 30.0\% \\" in text
    assert "+20.0*" in text


def test_a_folder_of_runs_under_one_condition_is_taken_as_a_whole(write_run: Any, tmp_path: Path) -> None:
    write_run("a0", 100)
    write_run("a1", 110, seed=1)
    write_run("b0", 150, method="fedsir")
    rows = compare([tmp_path], against="fedsir")
    assert [(row.method, row.seeds) for row in rows] == [("fedavg", (0, 1)), ("fedsir", (0,))]
    assert rows[0].difference == pytest.approx(-0.25) and rows[1].difference is None


def test_unfinished_runs_in_a_folder_are_left_out_and_named(
    write_run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run("a", 100)
    unfinished = [write_run(f"b{seed}", 0, seed=seed) for seed in (1, 2, 3, 4)]
    for folder in unfinished:
        (folder / "result.json").unlink()
    compare_command([tmp_path], as_json=True)
    told = capsys.readouterr()
    assert [row["seeds"] for row in json.loads(told.out)] == [[0]]
    assert told.err == f"fedsir: left out of {tmp_path}, not finished: b1, b2, b3 and 1 more\n"
    with pytest.raises(RunFolderError, match=r"The run in .*b1 is not finished"):  # this one was asked for
        compare([tmp_path / "a", tmp_path / "b1"])
    (tmp_path / "a" / "result.json").unlink()
    with pytest.raises(RunFolderError, match=r"None of the 5 run\(s\) in .* is finished"):
        compare([tmp_path])


def test_a_folder_of_mixed_conditions_is_refused_until_one_is_chosen(write_run: Any, tmp_path: Path) -> None:
    write_run("a", 100, data={"noise_rate": 0.3})
    write_run("b", 150, data={"noise_rate": 0.6})
    with pytest.raises(
        RunFolderError, match=r"data.noise_rate is 0.3 in a and 0.6 in b. Choose with --only data.noise_"
    ):
        compare([tmp_path])
    (row,) = compare([tmp_path], {"data.noise_rate": 0.6})
    assert row.accuracy == pytest.approx(0.75)
    assert len(compare([tmp_path / "a", tmp_path / "b"])) == 2  # named one by one, each has a row of its own


@pytest.mark.parametrize(
    ("only", "against", "reason"),
    [
        ({"data.noise": 0.3}, None, "none of the runs has that setting"),
        ({"data.alpha": 0.3}, None, "no run is left"),
        ({}, "fedser", "there is no row of it"),
        ({}, "fedavg", "there is more than one row of it"),
    ],
)
def test_what_cannot_be_chosen_is_named(
    write_run: Any, tmp_path: Path, only: dict[str, Any], against: str | None, reason: str
) -> None:
    write_run("a", 100, lr=0.1)
    write_run("b", 100, lr=0.2)
    with pytest.raises(ConfigError, match=reason):
        compare([tmp_path], only, against)


def test_one_seed_can_be_chosen(write_run: Any, tmp_path: Path) -> None:
    write_run("a", 100)
    write_run("b", 120, seed=1)
    (row,) = compare([tmp_path], {"seed": 1})
    assert row.seeds == (1,)


def test_settings_are_not_broken_at_the_edge_of_a_log(write_run: Any, capsys: pytest.CaptureFixture[str]) -> None:
    long = "a_setting_with_a_name_that_leaves_no_room_for_numbers"
    compare_command([write_run("a", 100, **{long: 1}), write_run("b", 190, **{long: 2})])
    lines = capsys.readouterr().out.splitlines()
    assert f"  method.{long}=2" in [line.rstrip() for line in lines]
    assert any(line.startswith("fedavg") and line.rstrip().endswith("60.0% → 30.0%") for line in lines)


def test_more_seeds_on_the_same_images_are_not_more_images(write_run: Any, tmp_path: Path) -> None:
    """Six images of 200 better is not certain with one seed; five runs that say the same add nothing to that."""
    sure = paired_difference(np.arange(200) < 103, np.arange(200) < 100)
    assert not sure.is_significant
    for seed in range(5):
        write_run(f"a{seed}", 100, seed=seed)
        write_run(f"b{seed}", 103, seed=seed, method="fedsir")
    _, same = compare([tmp_path])
    assert (same.difference, same.is_different) == (pytest.approx(0.015), False)


def test_seeds_with_other_test_images_are_more_images(write_run: Any, tmp_path: Path) -> None:
    for seed in range(5):
        rows = np.arange(200) + 200 * seed
        write_run(f"a{seed}", 100, seed=seed, rows=rows)
        write_run(f"b{seed}", 103, seed=seed, method="fedsir", rows=rows)
    _, other = compare([tmp_path])
    assert (other.difference, other.is_different) == (pytest.approx(0.015), True)


def test_rows_tell_which_images_were_the_same(write_run: Any) -> None:
    one, other = (
        write_run(name, n, method=name, rows=np.arange(200) + n) for name, n in (("fedavg", 1), ("fedsir", 9))
    )
    row = compare([one, other])[1]
    assert (row.difference, row.is_different) == (None, None)
    assert _cells(row)[5] == "no common seed"


def test_what_is_not_set_can_be_chosen(write_run: Any, tmp_path: Path) -> None:
    write_run("a", 100, data={"public": "held-out"})
    write_run("b", 110)
    with pytest.raises(RunFolderError, match=r"is held-out in a and not set in b\. .* --only data.public=,"):
        compare([tmp_path])
    assert [row.accuracy for row in compare([tmp_path], {"data.public": ""})] == [0.55]


def test_public_images_from_elsewhere_are_no_other_condition(write_run: Any, tmp_path: Path) -> None:
    write_run("a", 100, method="fedned", data={"public": "cifar100"})
    write_run("b", 110)
    assert len(compare([tmp_path])) == 2


def test_data_that_have_changed_are_not_averaged(write_run: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        (write_run(f"a{seed}", 100, seed=seed) / "data.json").write_text(
            json.dumps(DATA_FILE | {"images_sha256": f"{seed}"})
        )
    with pytest.raises(RunFolderError, match="different images"):
        compare([tmp_path])


@pytest.mark.parametrize("settings", ["rounds = 3\n", "seed = 3\n", "seed = \n"])
def test_settings_that_no_run_has_are_damaged(write_run: Any, settings: str) -> None:
    folder = write_run("a", 100)
    (folder / "config.toml").write_text(settings)
    with pytest.raises(RunFolderError, match=r"a/config\.toml is (damaged|not a TOML file)"):
        compare([folder])
