"""Damaged files of a run folder: one line that names the trouble, or the same result as without the damage."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsir.errors import FedsirError, RunFolderError
from fedsir.runs.progress import Silent
from fedsir.runs.recipes import resolve
from fedsir.runs.result import load_run
from fedsir.runs.runner import RunTarget, run_experiment
from fedsir.sweeps.comparison import compare

FEDSIR = {"name": "fedsir", "identify": {"epochs": 1}, "relabel": {"every": 1}}
CONFIG = resolve("digits", {"rounds": 2, "method": FEDSIR, "data": {"n_train": 60, "n_test": 20, "n_clients": 3}})
TIMES = ("seconds", "run_dir")


class Stop(Exception):
    """Ctrl-C."""


class StopAfterRoundOne(Silent):
    def round_done(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] == 1:
            raise Stop


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("finished") / "run"
    run_experiment(CONFIG, RunTarget(out))
    return out


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("begun") / "run"
    with pytest.raises(Stop):
        run_experiment(CONFIG, RunTarget(out, progress=StopAfterRoundOne()))
    return out


def without_times(result: Any) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in TIMES}


Damage = Callable[[Path], object]
WAYS: dict[str, Damage] = {
    "gone": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "one byte short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "zeros": lambda path: path.write_bytes(b"\0" * path.stat().st_size),
    "a wrong byte": lambda path: path.write_bytes(_with_a_wrong_byte(path.read_bytes())),
    "noise": lambda path: path.write_bytes(np.random.default_rng(0).bytes(500)),
    "a list": lambda path: path.write_text("[]\n"),
    "an object": lambda path: path.write_text("{}\n"),
    "nested": lambda path: path.write_text("[" * 100_000 + "]" * 100_000 + "\n"),
    "many digits": lambda path: path.write_text('{"round": ' + "9" * 5000 + "}\n"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}
FINISHED = ("config.toml", "data.json", "identification.json", "labels.npz", "metrics.jsonl", "model.safetensors",
            "predictions.npz", "provenance.json", "relabelling.json", "result.json", "checkpoint", ".lock")  # fmt: skip
BEGUN = ("config.toml", "data.json", "metrics.jsonl", "provenance.json", "checkpoint", ".lock")


def _with_a_wrong_byte(content: bytes) -> bytes:
    """Return the content with a byte in its middle that was not there, and that no text has."""
    middle = len(content) // 2
    return content[:middle] + (b"\xff" if content[middle : middle + 1] != b"\xff" else b"\xfe") + content[middle + 1 :]


def damaged(folder: Path, where: Path, name: str, way: str) -> Path:
    copy = shutil.copytree(folder, where / "run")
    if name == "checkpoint":
        [path] = copy.glob("checkpoint-*")
    else:
        path = copy / name
    WAYS[way](path)
    return copy


def told_or(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or None where it says in one line what is wrong."""
    try:
        return call()
    except FedsirError as problem:
        if "\n" in str(problem):
            raise
        return None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", BEGUN)
def test_a_run_goes_on_to_the_same_result_or_says_why_not(
    finished: Path, begun: Path, tmp_path: Path, name: str, way: str
) -> None:
    copy = damaged(begun, tmp_path, name, way)
    result = told_or(lambda: run_experiment(CONFIG, RunTarget(copy)))
    assert result is None or without_times(result) == without_times(load_run(finished))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FINISHED)
def test_a_finished_run_is_read_as_it_was_or_not_at_all(finished: Path, tmp_path: Path, name: str, way: str) -> None:
    copy, whole = damaged(finished, tmp_path, name, way), load_run(finished)
    row = told_or(lambda: compare([copy]))
    assert row is None or row == compare([finished])
    again = told_or(lambda: load_run(copy))
    if again is not None:
        assert without_times(again) == without_times(whole)
        metrics, split, labels = (told_or(lambda: again.metrics), told_or(lambda: again.split), told_or(again.labels))
        assert metrics is None or list(metrics) == list(whole.metrics)
        assert split in (None, whole.split)
        assert labels in (None, whole.labels())
        model = told_or(again.model)
        ours = whole.model().state_dict()
        assert model is None or all((tensor == ours[key]).all() for key, tensor in model.state_dict().items())
    result = told_or(lambda: run_experiment(CONFIG, RunTarget(copy)))
    assert result is None or without_times(result) == without_times(whole)


RESULT_FAULTS = {
    "accuracy": (7.5, -0.1, "0.5", None, True, [0.5]),
    "accuracy_half_width": ("x", None, -1),
    "seconds": ("1", None, -3.0),
    "method": (3, None),
    "model_sha256": (3, None),
    "identification_accuracy": (2, "x"),
    "noise_after": (1.5, "much"),
    "noisy_clients": ("0", [0], {"0": 1}, 5),
    "clean_clients": (3, [None]),
    "not_assessed": (["0"], {"0": 5}, "x"),
    "evidence": (3, {"separation": "far"}),
    "two_groups": ("perhaps", 1),
    "bytes_up": ("1", -1, 1.5),
    "n_relabelled": ("3", -1),
    "noise_rate_error": (0.1, {"mean": "small"}),
    "rounds": ("2", True),
}


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in RESULT_FAULTS.items() for value in values])
def test_a_result_of_wrong_types_or_out_of_range_is_damaged(
    finished: Path, tmp_path: Path, key: str, value: Any
) -> None:
    copy = shutil.copytree(finished, tmp_path / "run")
    fields = json.loads((copy / "result.json").read_text())
    (copy / "result.json").write_text(json.dumps(fields | {key: value}))
    for call in (lambda: load_run(copy), lambda: compare([copy]), lambda: run_experiment(CONFIG, RunTarget(copy))):
        with pytest.raises(RunFolderError, match=r"result\.json is damaged: remove it"):
            call()


@pytest.mark.parametrize(
    "line",
    [
        {"round": 1},
        {"round": "1"},
        {"accuracy": 7.5},
        {"loss": "low"},
        {"seconds": None},
        {"bytes_up": None},
        {"failures": ["0"]},
        {"relabelled": 1.5},
        {"noise_rate_by_client": {"0": "half"}},
    ],
    ids=str,
)
def test_metrics_without_fields_or_with_wrong_ones_are_damaged(
    finished: Path, begun: Path, tmp_path: Path, line: dict[str, Any]
) -> None:
    for folder in (finished, begun):
        copy = shutil.copytree(folder, tmp_path / folder.parent.name)
        first, second, *rest = (copy / "metrics.jsonl").read_text().splitlines()
        wrong = json.dumps(line if line == {"round": 1} else json.loads(second) | line)
        (copy / "metrics.jsonl").write_text("\n".join([first, wrong, *rest, ""]))
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl is damaged"):
        load_run(tmp_path / finished.parent.name).metrics  # noqa: B018 - it is read when it is asked for
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl is damaged"):
        run_experiment(CONFIG, RunTarget(tmp_path / begun.parent.name))


def npz(**changes: Any) -> Callable[[Path], None]:
    def rewrite(path: Path) -> None:
        with np.load(path) as stored:
            arrays = {name: stored[name] for name in stored.files}
        buffer = io.BytesIO()
        kept = {name: array for name, array in (arrays | changes).items() if array is not None}
        np.savez(buffer, **kept)
        path.write_bytes(buffer.getvalue())

    return rewrite


@pytest.mark.parametrize(
    "changes",
    [
        {"predicted": np.arange(7)},
        {"predicted": np.zeros((20, 1), int)},
        {"predicted": np.zeros(20)},
        {"predicted": np.array(["a"] * 20)},
        {"predicted": np.full(20, -1)},  # another model's
        {"labels": np.zeros((4, 5), int)},
        {"rows": np.arange(7)},
        {"rows": np.array(["a"] * 20)},
        {"labels": None},
    ],
    ids=lambda changes: f"{next(iter(changes))}",
)
def test_predictions_that_are_not_those_of_the_result_are_damaged(
    finished: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    copy = shutil.copytree(finished, tmp_path / "run")
    npz(**changes)(copy / "predictions.npz")
    with pytest.raises(RunFolderError, match=r"predictions\.npz is damaged"):
        compare([copy])


@pytest.mark.parametrize(
    "changes",
    [{"given": np.full(60, -1)}, {"corrected": np.full(60, 99)}, {"client": np.arange(3)}, {"class_names": None}],
    ids=lambda changes: f"{next(iter(changes))}",
)
def test_labels_out_of_range_are_damaged(finished: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    copy = shutil.copytree(finished, tmp_path / "run")
    npz(**changes)(copy / "labels.npz")
    with pytest.raises(RunFolderError, match=r"labels\.npz is damaged"):
        load_run(copy).labels()


def test_a_checkpoint_of_another_round_is_damaged_though_its_hash_is_right(begun: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(begun, tmp_path / "run")
    [path] = copy.glob("checkpoint-*")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    path.rename(copy / f"checkpoint-000000-{digest}.safetensors")
    with pytest.raises(RunFolderError, match="the checkpoint is damaged: it is not of round 0"):
        run_experiment(CONFIG, RunTarget(copy))


def test_the_advice_for_missing_predictions_works(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = shutil.copytree(finished, tmp_path / "my run")
    (copy / "predictions.npz").unlink()
    with pytest.raises(RunFolderError, match=r"remove its result\.json and then run `fedsir run '.*'") as told:
        compare([copy])
    words = str(told.value).partition("`fedsir run '")[2].split("' --out '")
    (copy / "result.json").unlink()
    monkeypatch.chdir(tmp_path)
    run_experiment(resolve(words[0]), RunTarget(Path(words[1].removesuffix("'`."))))
    assert compare([copy]) == compare([finished])


@pytest.mark.parametrize("name", ["zero\0byte", "\ud800", "a" * 300, "/".join(["b" * 200] * 20)])
def test_an_out_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("fedsir.runs.runner.load_federation", lambda *_, **__: pytest.fail("began"))
    with pytest.raises(RunFolderError, match="Choose another --out"):
        run_experiment(CONFIG, RunTarget(tmp_path / name))
    assert list(tmp_path.iterdir()) == []
