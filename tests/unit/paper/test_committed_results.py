"""The results in this repository: every table there is what its committed runs give today."""

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fedsir.paper import figures
from fedsir.paper.reproduction import Reproduction
from fedsir.paper.scales import SCALES
from fedsir.paper.tables import TABLES, Selection
from fedsir.sweeps.comparison import compare

RESULTS = Path(__file__).parents[3] / "results"
FOUND = sorted(RESULTS.glob("*/*.csv"))
FILES = [path for path in FOUND if not path.stem.startswith("figure-")]


def test_there_are_results() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_table_can_be_made_again_from_its_runs(path: Path, tmp_path: Path) -> None:
    name, _, scale = path.stem.rpartition("-")
    shutil.copytree(path.parent / "runs", tmp_path / "runs")
    Reproduction.of(TABLES[name], SCALES[scale], Selection(), tmp_path).write()
    for ending in ("csv", "md", "tex"):
        again = (tmp_path / path.name).with_suffix(f".{ending}")
        assert again.read_text() == path.with_suffix(f".{ending}").read_text(), (
            f"{path.stem}.{ending} is not what its runs give: make it again with fedsir reproduce {name} "
            f"--scale {scale} --no-run --out {path.parent}"
        )


def test_the_similarities_are_those_of_today_s_settings(tmp_path: Path) -> None:
    stem, scale = "figure-similarity-cpu", SCALES["cpu"]
    shutil.copy(RESULTS / "cifar10-cpu" / f"{stem}.npz", tmp_path)
    figures.similarity(figures.similarity_config(scale, 0.5, 42), scale, tmp_path, no_run=True)
    assert (tmp_path / f"{stem}.csv").read_text() == (RESULTS / "cifar10-cpu" / f"{stem}.csv").read_text()


@pytest.fixture(autouse=True)
def _scripts_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESULTS)


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, RESULTS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def refresh() -> ModuleType:
    """Return the script behind `make results`."""
    return script("refresh")


def test_the_pages_show_what_the_tables_have(refresh: ModuleType) -> None:
    for page in refresh.PAGES:
        text = page.read_text()
        assert refresh.PART.search(text)
        assert refresh.filled(text) == text, "run `make results`"


def test_every_table_is_one_that_is_refreshed(refresh: ModuleType) -> None:
    assert {tuple(path.stem.rsplit("-", 1)) for path in FILES} <= set(refresh.TABLES)


@pytest.mark.parametrize("noise_rate", ["0.3", "0.6", "0.9"])
def test_the_comparison_on_digits_can_be_made_again(noise_rate: str) -> None:
    rows = compare([RESULTS / "digits" / "runs"], {"data.noise_rate": float(noise_rate)}, "fedsir")
    stored = json.loads((RESULTS / "digits" / f"noise-{noise_rate}.json").read_text())
    assert json.loads(json.dumps([row.as_dict() for row in rows])) == stored
    assert all(len(row.seeds) == 3 for row in rows) and len(rows) == 11


@pytest.mark.parametrize("sweep", ["sweep", "demo"])
def test_the_digits_are_those_of_the_sweep(refresh: ModuleType, sweep: str) -> None:
    assert refresh.digits_results(sweep) == json.loads((RESULTS / "digits" / f"{sweep}.json").read_text())


def test_our_own_tables_are_what_the_runs_give(refresh: ModuleType) -> None:
    for file, table in refresh.OWN_TABLES.items():
        assert (RESULTS / file).read_text() == table(), file


@pytest.mark.parametrize("name", ["relabel_by_size", "bayes_by_noise", "few_sites", "audit_intervals"])
def test_a_measurement_is_shown_as_stored(name: str) -> None:
    measured = script(name)
    assert measured.OUTPUT.with_suffix(".md").read_text() == measured.table(measured.read())


@pytest.mark.parametrize(("name", "table"), [("class_pairs", "tables"), ("initial_model", "table")])
def test_rows_are_shown_as_stored(name: str, table: str) -> None:
    measured = script(name)
    rows = measured.stored(measured.OUTPUT)
    assert measured.OUTPUT.with_suffix(".md").read_text() == getattr(measured, table)(rows)


def test_the_kinds_of_noise_are_shown_as_stored() -> None:
    kinds = script("noise_kinds")
    rows = kinds.stored(kinds.OUTPUT)
    assert len(rows) == len(kinds.KINDS) * len(kinds.METHODS) * len(kinds.SEEDS)
    assert kinds.OUTPUT.with_suffix(".md").read_text() == kinds.table(rows)


def test_a_size_is_measured_as_the_stages_say() -> None:
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 40)
    features = np.eye(3, 8)[labels] * 5 + random.random((120, 8))
    row = script("relabel_by_size").measure(features, labels, features, labels, size=20, draw=0)
    assert (row["images_per_class"], row["direction_right"]) == (20, 1.0)
    assert 0 < row["residual_right"] <= 1
    assert row["agree"] * row["right_where_they_agree"] <= row["residual_right"] + 1e-9


def test_rows_are_kept_one_after_the_other_until_they_are_replaced(tmp_path: Path) -> None:
    rows, file = script("stored_rows"), tmp_path / "some.csv"
    assert rows.stored(file) == []
    rows.add(file, [{"draw": 0, "rate": 0.5}])
    rows.add(file, [{"draw": 1, "rate": 0.25}, {"draw": 2, "rate": 0.1}])
    assert file.read_text() == "draw,rate\n0,0.5\n1,0.25\n2,0.1\n"
    rows.replace(file, [{"kind": "pair"}])
    assert rows.stored(file) == [{"kind": "pair"}]
