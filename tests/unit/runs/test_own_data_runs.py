"""Runs on a user's own data: corrected labels lead back to samples, and changed data are noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch

import fedsir
from fedsir.errors import RunFolderError
from fedsir.models.build import build_model, training_model
from fedsir.models.config import IMAGENET_FILES, ModelConfig
from fedsir.models.resnet18 import ResNet18
from fedsir.randomness import KeyedRandom
from fedsir.runs.config import merge
from fedsir.runs.estimate import plan_run
from fedsir.runs.recipes import resolve
from fedsir.runs.result import RunResult
from fedsir.runs.runner import RunTarget, run_experiment


def write_npz(path: Path, change: int = 0, side: int = 8) -> None:
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, side, side), dtype=np.uint8)
    labels = np.arange(60) % 3
    labels[:3] = (labels[:3] + change) % 3
    np.savez(path, images=images, labels=labels, clients=np.array(["east", "west"] * 30))


def run(path: Path, out: Path) -> RunResult:
    return fedsir.run(method="fedavg", dataset=path, rounds=1, out=out)


def test_labels_lead_back_to_rows(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write_npz(path)
    run(path, tmp_path / "run")
    given = np.load(path)["labels"]
    with np.load(tmp_path / "run" / "labels.npz", allow_pickle=False) as labels:
        rows = labels["sample"].astype(int)
        assert len(rows) == 48  # a fifth is held out
        np.testing.assert_array_equal(labels["given"], given[rows])
        assert set(labels["client_names"][labels["client"]]) == {"east", "west"}
        assert labels["class_names"].tolist() == ["0", "1", "2"]


def test_a_finished_run_notices_changed_data(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    write_npz(path)
    first = run(path, tmp_path / "run")
    assert run(path, tmp_path / "run") == first
    write_npz(path, change=1)
    with pytest.raises(RunFolderError, match="data have changed"):
        run(path, tmp_path / "run")


def test_a_run_on_a_relative_path_is_known_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    write_npz(tmp_path / "here" / "own.npz")
    words = {"rounds": 1, "method": {"name": "fedavg"}, "data": {"dataset": "own.npz"}}
    monkeypatch.chdir(tmp_path / "here")
    made = run_experiment(resolve(None, words), RunTarget(Path("run")))
    stored = Path("run/config.toml")
    assert resolve(str(stored)).sha256 == resolve(None, words).sha256
    # Folders from before paths were stored whole: the same command still knows them.
    stored.write_text(stored.read_text().replace(str(tmp_path / "here" / "own.npz"), "own.npz"))
    assert run_experiment(resolve(None, words), RunTarget(Path("run")))["model_sha256"] == made["model_sha256"]
    stored.write_text(resolve(None, words).to_toml())
    monkeypatch.chdir(tmp_path)
    elsewhere = resolve("here/run/config.toml")
    assert run_experiment(elsewhere, RunTarget(Path("here/run")))["model_sha256"] == made["model_sha256"]


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Return a data directory with weights in the form of ImageNet's."""
    stock = build_model(ModelConfig(name="resnet18"), n_classes=9, in_channels=3, random=KeyedRandom(3))
    safetensors.torch.save_file(stock.state_dict(), tmp_path / IMAGENET_FILES[1])
    return tmp_path


@pytest.mark.parametrize(
    ("side", "settings", "has_weights", "model"),
    [
        (31, {}, True, "small_cnn"),
        (32, {}, True, "resnet18"),
        (32, {}, False, "strided_cnn"),
        (64, {"data": {"image_size": 24}}, True, "small_cnn"),
        (8, {"data": {"image_size": [40, 32]}}, True, "resnet18"),
        (8, {"data": {"image_size": [40, 31]}}, False, "small_cnn"),
        (64, {"model": {"name": "small_cnn"}}, True, "small_cnn"),
    ],
)
def test_the_size_of_own_images_chooses_the_model(
    weights: Path, side: int, settings: dict[str, Any], has_weights: bool, model: str
) -> None:
    write_npz(weights / "own.npz", side=side)
    tree = {**settings, "data": {"dataset": str(weights / "own.npz"), **settings.get("data", {})}}
    config = resolve(None, tree, data_dir=weights if has_weights else weights / "none")
    assert config.model == ModelConfig(name=model, weights="imagenet" if model == "resnet18" else "none")
    # ResNet-18 learns as on CIFAR-10, small networks from scratch as on digits.
    other = resolve("cifar10" if model == "resnet18" else "digits").method
    assert config.method.lr == other.lr
    said = config.tree()["method"]
    assert (said["preset"], said["identify"]["split"], said["relabel"]["rule"]) == ("plus", "rates", "bayes")
    # Who names the authors' preset means all of it, but for what few images ask for.
    authors = resolve(None, merge(tree, {"method": {"preset": "authors"}}), data_dir=weights).tree()["method"]
    assert (authors["identify"]["split"], authors["relabel"]["rule"]) == ("always", "agreement")
    assert authors["relabel"]["min_samples"] == 5
    # A recipe that is named stays, and a permission to download counts as weights.
    assert resolve("own-data", tree, data_dir=weights).model.name in ("small_cnn", "strided_cnn")
    wished = resolve(None, tree, data_dir=weights / "none", download=True).model.name
    assert wished == ("resnet18" if model == "strided_cnn" else model)


def test_a_run_on_own_photos_says_which_model_it_used_and_goes_on_with_it(weights: Path) -> None:
    write_npz(weights / "own.npz", side=36)  # beyond the compact twin
    tree = {"rounds": 1, "method": {"name": "fedavg"}, "data": {"dataset": str(weights / "own.npz")}}
    config = resolve(None, tree, data_dir=weights)
    result = run_experiment(config, RunTarget(weights / "run", data_dir=weights))
    assert 'name = "resnet18"' in (weights / "run" / "config.toml").read_text()
    assert isinstance(result.model(), ResNet18)
    again = resolve(str(weights / "run" / "config.toml"), data_dir=weights / "none")  # though weights have gone since
    assert run_experiment(again, RunTarget(weights / "run", data_dir=weights)) == result


def test_a_plan_offers_the_weights_that_are_missing(weights: Path) -> None:
    write_npz(weights / "own.npz", side=32)
    tree = {"method": {"name": "fedavg"}, "data": {"dataset": str(weights / "own.npz")}}
    there, missing = (weights, weights / "none")
    planned = plan_run(resolve(None, tree, data_dir=missing), workers=1, data_dir=missing)
    assert planned["estimate"]["model"] == "strided_cnn"
    assert "--download" in planned["notes"][-1]
    assert not plan_run(resolve(None, tree, data_dir=there), workers=1, data_dir=there)["notes"]


def test_images_in_memory_choose_as_files_do(weights: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (60, 32, 32), dtype=np.uint8)
    data = fedsir.FederatedData.from_arrays(images, np.arange(60) % 3, np.arange(60) // 30)
    for where, features in ((weights, 512), (weights / "none", 128)):
        with fedsir.simulate(data, "fedavg", rounds=1, data_dir=where) as simulation:
            next(iter(simulation))
            assert simulation.model().head.in_features == features


def test_resnet18_takes_the_slow_path_at_224() -> None:
    stock = build_model(
        ModelConfig(name="resnet18"), n_classes=3, in_channels=3, random=KeyedRandom(0), image_size=(224, 224)
    )
    assert training_model(stock, "resnet18", (224, 224)) is stock
