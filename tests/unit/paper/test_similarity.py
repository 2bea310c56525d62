"""The paper's Figure 2 on digits: the classes of one client grow alike as its labels go wrong."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from fedsir.errors import ConfigError, DataError
from fedsir.paper.similarity import Similarity, best_spread_client, similarity_panels
from fedsir.runs.config import RunConfig
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, run_experiment
from fedsir.stages.split import OffDiagonal

SMALL = {"data": {"n_clients": 4, "n_train": 600, "n_test": 20}, "rounds": 1}


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return resolve("digits", SMALL)


@pytest.fixture(scope="module")
def panels(config: RunConfig) -> Similarity:
    return similarity_panels(config)


def test_wrong_labels_make_classes_alike(panels: Similarity) -> None:
    assert panels.noise_rates == (0.0, 0.4, 0.8)
    assert panels.matrices.shape == (3, 10, 10)
    clean, some, most = (s.mean for s in panels.off_diagonal)
    assert clean < some < most
    assert clean + 0.05 < most
    for matrix in panels.matrices:
        assert np.allclose(matrix, matrix.T, equal_nan=True)
        assert np.nanmax(matrix) <= 1 + 1e-5  # directions have the precision of float32


def test_the_same_settings_give_the_same_matrix(config: RunConfig, panels: Similarity) -> None:
    again = similarity_panels(config, (0.8,))
    assert np.array_equal(again.matrices[0], panels.matrices[2], equal_nan=True)
    assert again.off_diagonal[0] == panels.off_diagonal[2]


def test_it_is_what_the_client_tells_in_a_run(panels: Similarity, tmp_path: Path) -> None:
    noisy = {"noisy_clients": [panels.client], "noise_rate": 0.8}
    config = resolve("digits", {**SMALL, "data": {**SMALL["data"], **noisy}})  # type: ignore[dict-item]
    run_experiment(config, RunTarget(tmp_path / "run"))
    told = json.loads((tmp_path / "run" / "identification.json").read_text())["split"]["statistics"][panels.client]
    assert told == pytest.approx([panels.off_diagonal[2].mean, panels.off_diagonal[2].energy])


def test_the_run_s_own_noise_is_not_read(config: RunConfig, panels: Similarity) -> None:
    data = config.data.model_copy(update={"noise_rate": 0.2, "noise_draw": "authors", "noisy_clients": "all"})
    other = similarity_panels(config.model_copy(update={"data": data}), (0.0,))
    assert np.array_equal(other.matrices[0], panels.matrices[0], equal_nan=True)
    assert panels.is_of(config) and not other.is_of(config)


@pytest.mark.parametrize(
    ("was", "now", "is_same"),
    [
        ('optimizer = "adam"\n', "", True),  # from before it was a setting: then it was what is the default now
        ('optimizer = "adam"', 'optimizer = "sgd"', False),
        ('name = "fedsir"', 'name = "gone.py:Gone"', False),  # code that nobody named is not looked for
        ("[method]", "[methods]", False),
        ("seed = 0", "seed =", False),
    ],
)
def test_settings_from_before_one_was_introduced_are_the_same(
    config: RunConfig, panels: Similarity, was: str, now: str, is_same: bool
) -> None:
    assert was in panels.settings
    assert dataclasses.replace(panels, settings=panels.settings.replace(was, now, 1)).is_of(config) == is_same


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[9, 0, 9], [3, 3, 3], [9, 9, 2]], 1),  # the only one with three usable classes
        ([[3, 3, 9], [4, 4, 4], [5, 3, 5]], 1),  # all have three: the rarest is largest here
        ([[4, 4, 4], [4, 4, 9]], 0),  # the first of equals
        ([[1, 1], [1, 2]], 0),  # nobody has any
    ],
)
def test_the_client_is_the_one_whose_classes_are_spread_best(counts: list[list[int]], expected: int) -> None:
    assert best_spread_client(np.array(counts), min_samples=3) == expected


def test_the_file_gives_everything_back(tmp_path: Path) -> None:
    nan = float("nan")
    stored = Similarity(
        noise_rates=(0.0, 0.4),
        matrices=np.array([[[1.0, nan], [nan, nan]], [[1.0, 0.25], [0.25, 1.0]]]),
        off_diagonal=(OffDiagonal(nan, nan, 1), OffDiagonal(0.25, 0.0625, 2)),
        class_names=("cat", "Ärger"),
        client="Berlin",
        n_samples=12,
        settings="abc",
    )
    path = tmp_path / "similarity.npz"
    path.write_bytes(stored.to_bytes())
    read = Similarity.load(path)
    assert np.array_equal(read.matrices, stored.matrices, equal_nan=True)
    assert read.off_diagonal[1] == stored.off_diagonal[1]
    assert np.isnan(read.off_diagonal[0].mean)
    assert read.off_diagonal[0].n_usable_classes == 1
    names = ("noise_rates", "class_names", "client", "n_samples", "settings")
    assert all(getattr(read, name) == getattr(stored, name) for name in names)


@pytest.mark.parametrize("content", [b"", b"no zip", "half"])
def test_a_damaged_file_is_named(content: bytes | str, tmp_path: Path, panels: Similarity) -> None:
    whole = panels.to_bytes()
    path = tmp_path / "similarity.npz"
    path.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    with pytest.raises(DataError, match=r"similarity\.npz .*remove it"):
        Similarity.load(path)


def test_matrices_that_do_not_fit_the_rates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "similarity.npz"
    odd = Similarity((0.0,), np.eye(2)[None], (OffDiagonal(0.0, 0.0, 2),), ("a", "b", "c"), "0", 1, "")
    path.write_bytes(odd.to_bytes())
    with pytest.raises(DataError, match="damaged"):
        Similarity.load(path)


def test_a_method_without_stage_one_is_refused() -> None:
    with pytest.raises(ConfigError, match="fedavg has no Stage I"):
        similarity_panels(resolve("digits", {"method": {"name": "fedavg"}}))


def test_a_rate_is_a_share(config: RunConfig) -> None:
    with pytest.raises(ConfigError, match=r"\[0, 1\], not 40"):
        similarity_panels(config, (0.0, 40))
