"""`RunResult`: what a run gives back, and its folder gives again."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedsir
from fedsir.data.from_arrays import as_images
from fedsir.errors import ConfigError, DataError, MethodError, RunFolderError
from fedsir.evaluate.accuracy import predict
from fedsir.runs.result import RunResult, load_run

TINY: dict[str, Any] = {"data.n_train": 90, "data.n_test": 20, "data.n_clients": 3, "method.lr": 0.003}
RESULTS = Path(__file__).resolve().parents[3] / "results"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    settings = TINY | {"method.identify.epochs": 1, "method.relabel.every": 1}
    return fedsir.run(method="fedsir", rounds=2, settings=settings, out=tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    settings = TINY | {"method.pretrain_epochs": 1}
    return fedsir.run(method="rhfl", rounds=1, settings=settings, out=tmp_path_factory.mktemp("own") / "run")


def test_a_run_gives_what_json_prints(made: RunResult) -> None:
    assert dict(made) == json.loads((made.folder / "result.json").read_text())
    assert len(made) == len(list(made)) > 20
    assert repr(made) == f"<RunResult fedsir on digits: accuracy {made['accuracy']:.1%}, in {made.folder}>"


def test_metrics_and_split_are_those_of_the_run(made: RunResult) -> None:
    assert made.metrics["round"] == [0, 1, 2]
    assert made.metrics["accuracy"][-1] == made["accuracy"]
    assert made.split is not None
    assert list(made.split.noisy) == made["noisy_clients"]


def test_labels_are_by_name_and_changed_ones_are_in_the_csv(made: RunResult) -> None:
    labels = made.labels()
    assert len(labels) == 90
    assert {row["client"] for row in labels} == {"0", "1", "2"}
    changed = [row for row in labels if row["given"] != row["corrected"]]
    assert len(changed) == made["n_relabelled"] > 0
    header, *lines = (made.folder / "labels.csv").read_text().splitlines()
    assert header == "sample,client,given,suggested"
    assert lines == [",".join(row.values()) for row in changed]


def test_with_plus_doubtful_labels_come_first_with_their_scores(tmp_path: Path) -> None:
    settings = TINY | {"method.preset": "plus", "data.n_train": 600, "data.noisy_clients": ["1"]}
    made = fedsir.run(method="fedsir", rounds=1, settings=settings, out=tmp_path / "run")
    with (made.folder / "labels.csv").open() as opened:
        rows = list(csv.DictReader(opened))
    assert len(rows) == made["n_relabelled"] > 0
    scores = [float(row["score"]) for row in rows]
    assert scores == sorted(scores) and scores[0] >= 0 and scores[-1] < 0.5  # another class is likelier
    with np.load(made.folder / "labels.npz") as stored:
        score, is_of_noisy = stored["score"], np.isin(stored["client_names"][stored["client"]], made["noisy_clients"])
    assert (np.isnan(score) == ~is_of_noisy).all(), "clean clients weigh nothing"


def accuracy_of(result: RunResult, client: str | None = None) -> list[bool]:
    data = fedsir.FederatedData.load("digits", n_clients=3, n_train=90, n_test=20, seed=0)
    images = torch.as_tensor(data.images[data.test_rows])
    predicted = predict(result.model(client), images, data.preprocessing.normalise)
    return (predicted == data.test_labels).tolist()


def test_the_model_predicts_as_it_did(made: RunResult) -> None:
    with np.load(made.folder / "predictions.npz") as stored:
        assert accuracy_of(made) == (stored["predicted"] == stored["labels"]).tolist()
    assert not made.model().training


def test_every_client_may_have_a_model_of_its_own(personal: RunResult) -> None:
    with np.load(personal.folder / "predictions.npz") as stored:
        for i, client in enumerate("012"):
            assert accuracy_of(personal, client) == (stored["predicted"][i] == stored["labels"]).tolist()
    with pytest.raises(MethodError, match="every client has a model of its own: name a client"):
        personal.model()
    with pytest.raises(ConfigError, match="no client '7'"):
        personal.model("7")
    assert personal.split is None


def test_a_moved_folder_gives_the_same(made: RunResult, tmp_path: Path) -> None:
    again = load_run(shutil.copytree(made.folder, tmp_path / "moved"))
    assert dict(again) == {**made, "run_dir": str(tmp_path / "moved")}
    assert again.labels() == made.labels()
    theirs, ours = again.model().state_dict(), made.model().state_dict()
    assert all(torch.equal(theirs[name], tensor) for name, tensor in ours.items())


def test_a_folder_from_before_there_was_a_third_verdict(made: RunResult, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "old")
    split = json.loads((folder / "identification.json").read_text())
    split["split"] |= {"noisy": ["0", "2"], "clean": ["1"], "not_assessed": {"2": "dropped out"}}
    del split["split"]["is_forced"]
    (folder / "identification.json").write_text(json.dumps(split))
    old = {key: value for key, value in made.items() if key not in ("not_assessed", "two_groups", "n_relabelled")}
    (folder / "result.json").write_text(json.dumps(old | {"noisy_clients": ["0", "2"]}))
    form = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps({k: form[k] for k in form if k not in ("channels", "image_size")}))
    again = load_run(folder)
    assert (again["noisy_clients"], again["not_assessed"]) == (["0"], {"2": "dropped out"})
    assert accuracy_of(again) == accuracy_of(made)


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("*/runs/*"))[::40], ids=lambda path: path.name)
def test_committed_runs_are_read_and_say_that_they_hold_no_model(folder: Path) -> None:
    result = load_run(folder)
    assert 0 < result["accuracy"] < 1
    assert result.split is None or set(result.split.noisy) == set(result["noisy_clients"])
    with pytest.raises(RunFolderError, match=r"holds no model, because model\.safetensors is missing"):
        result.model()


def test_a_folder_that_is_none_and_one_that_is_not_finished(made: RunResult, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "zero\0byte", "a" * 5000):
        with pytest.raises(RunFolderError, match=r"is not a run folder|cannot be read"):
            load_run(path)
    folder = shutil.copytree(made.folder, tmp_path / "un finished")
    (folder / "result.json").unlink()
    with pytest.raises(RunFolderError, match=r"is not finished: go on with `fedsir run '.*un finished/config.toml'"):
        load_run(folder)


def test_a_folder_cannot_have_code_run(made: RunResult, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "run")
    config = (folder / "config.toml").read_text().replace('"small_cnn"', '"tiny_network:Tiny"')
    (folder / "config.toml").write_text(config)
    with pytest.raises(ConfigError, match="tiny_network:Tiny, code that a folder cannot have run"):
        load_run(folder).model()


def test_new_images_are_predicted_as_the_test_images_were(made: RunResult, personal: RunResult) -> None:
    data = fedsir.FederatedData.load("digits", n_clients=3, n_train=90, n_test=20, seed=0)
    images = data.images[data.test_rows]
    with np.load(made.folder / "predictions.npz") as stored:
        assert made.predict(images).tolist() == stored["predicted"].tolist()
    with np.load(personal.folder / "predictions.npz") as stored:
        assert personal.predict(images, client="1").tolist() == stored["predicted"][1].tolist()
    assert made.class_names == data.class_names
    larger = np.repeat(np.repeat(images, 2, axis=2), 2, axis=3)
    brought_back = as_images("images", larger, data.image_size)
    assert made.predict(larger).tolist() == made.predict(brought_back).tolist()
    with pytest.raises(DataError, match=r"3 channel\(s\), those that the model was trained on 1"):
        made.predict(np.zeros((2, 3, 8, 8), np.uint8))


def test_an_older_folder_says_that_it_does_not_know_the_normalisation(made: RunResult, tmp_path: Path) -> None:
    folder = shutil.copytree(made.folder, tmp_path / "old")
    form = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps({k: v for k, v in form.items() if k not in ("mean", "std")}))
    with pytest.raises(RunFolderError, match="does not say how its images were normalised"):
        load_run(folder).predict(np.zeros((2, 8, 8), np.uint8))
