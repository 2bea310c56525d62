"""Words, files and folders that cannot be used: exit code 2 and one line that names the culprit."""

import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedsir.data.cifar_facts import CIFAR
from fedsir.runs import runner

Refused = Callable[..., str]
Npz = Callable[..., Path]
RUN = ["run", "--method", "fedavg", "--rounds", "1", "--workers", "1", "--out", "run"]
TINY = ["--set", "data.n_train=60", "--set", "data.n_test=20", "--set", "data.n_clients=3"]


def set_(*assignments: str) -> list[str]:
    return [word for text in assignments for word in ("--set", text)]


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--alpha", "0"], "data.alpha.*greater than 0"),
        (["--alpha", "-1"], "data.alpha"),
        (["--alpha", "nan"], "data.alpha"),
        (["--alpha", "inf"], "data.alpha"),
        (["--noise-rate", "1.5"], "data.noise_rate.*from 0 to 1.*1.5"),
        (["--noise-rate", "-0.1"], "data.noise_rate"),
        (["--noise-rate", "nan"], "data.noise_rate"),
        (["--noise-rate", "0.9-0.1"], r"data.noise_rate.*lowest.*highest.*'0.9-0.1'"),
        (["--rounds", "-1"], "rounds.*-1"),
        (["--rounds", "0"], "rounds"),
        (["--seed", "-1"], "seed.*-1"),
        (["--workers", "0"], "workers.*at least 1"),
        (["--workers", "-2"], "workers"),
        (["--method", "fedsri"], "'fedsri'.*Did you mean 'fedsir'"),
        (["--dataset", "cifar11"], "'cifar11'.*Did you mean 'cifar1"),
        (["--device", "gpu"], "device.*'gpu'.*cpu"),
        (["--device", "cuda:77"], "device.*'cuda:77'"),
        (set_("method.lerning_rate=1"), "method.lerning_rate"),
        (set_("data.alhpa=1"), "data.alhpa.*Did you mean 'alpha'"),
        (set_("evalute_every=1"), "evalute_every.*Did you mean 'evaluate_every'"),
        (set_("method"), "--set method: give a key and a value"),
        (set_("data=5"), "data"),
        (set_("method.batch_size=many"), "method.batch_size.*'many'"),
        (set_("method.lr="), "method.lr"),
        (set_("participation=3"), "participation"),
        (set_("data.n_train=0"), "data.n_train"),
        (set_("data.n_train=9999"), "data.n_train = 9999"),
        (set_("data.noisy_clients=nobody"), "data.noisy_clients.*'nobody'"),
        (set_("data.noise=pair", "data.noise_draw=authors"), "noise_draw = 'authors'.*set it to keyed"),
        (set_("model.name=resnet19"), "model.name.*'resnet19'"),
        (set_("model.name=os.path:join"), "model.name.*'os.path:join'"),
        (set_("model.weights=imagenet"), "imagenet"),
        (set_("model.weights=gone.pth"), "gone.pth"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_words(refused: Refused, words: list[str], names: str) -> None:
    line = refused(*RUN, *words)
    assert re.search(names, line), line
    assert not Path("run/data.json").exists()


@pytest.mark.parametrize("words", [["--rounds", "many"], ["--nonsense"], ["--set"]], ids=" ".join)
def test_words_that_are_no_options_are_refused_too(fedsir: Callable[..., Any], words: list[str]) -> None:
    done = fedsir(*RUN, *words)
    assert done.code == 2
    assert words[0] in done.err and "Traceback" not in done.err


def test_other_commands_refuse_the_same_words(refused: Refused) -> None:
    assert "data.alpha" in refused("plan", "--alpha", "0")
    assert "'fedsri'" in refused("show", "--method", "fedsri")
    assert "workers" in refused("plan", "--workers", "0")
    assert "data.noise_rate" in refused("demo", "--noise-rate", "2")


@pytest.mark.parametrize("command", ["run", "plan", "show"])
def test_recipes_that_are_none(refused: Refused, command: str) -> None:
    assert re.search("'no-such-recipe'.*digits", refused(command, "no-such-recipe"))
    assert "Did you mean 'digits'" in refused(command, "digit")
    Path("bad.toml").write_text("rounds = = 3")
    assert "bad.toml is not a TOML file" in refused(command, "bad.toml")
    Path("image.toml").write_bytes(b"\x89PNG\xff")
    assert "image.toml is not a TOML file" in refused(command, "image.toml")
    Path("folder").mkdir()
    assert "'folder'" in refused(command, "folder")


# ---------------------------------------------------------------- published data


def test_data_that_are_missing(refused: Refused, tmp_path: Path) -> None:
    line = refused(*RUN, "--dataset", "cifar10", "--data-dir", tmp_path)
    assert str(tmp_path) in line and "cifar-10-batches-bin" in line and "--download" in line


def test_a_data_directory_that_does_not_exist(refused: Refused) -> None:
    assert "not-here" in refused(*RUN, "--dataset", "cifar10", "--data-dir", "not-here")
    assert not Path("not-here").exists()


def test_data_that_are_truncated(refused: Refused) -> None:
    layout = CIFAR["cifar10"].layouts[0]
    folder = Path(layout.folder)
    folder.mkdir()
    first, *others = [*layout.train, *layout.test]
    for name in [first, *others]:
        (folder / name).write_bytes(b"\0" * 3000)
    line = refused(*RUN, "--dataset", "cifar10", "--data-dir", ".")
    assert f"{first} is damaged" in line and "3,000 bytes" in line
    (folder / first).unlink()
    assert f"{first} cannot be read" in refused(*RUN, "--dataset", "cifar10", "--data-dir", ".")


def test_data_with_another_checksum(refused: Refused) -> None:
    layout = CIFAR["cifar10"].layouts[0]
    first, checksum = next(iter(layout.train.items()))
    Path(layout.folder).mkdir()
    with Path(layout.folder, first).open("wb") as file:
        file.truncate(10000 * 3073)  # the right size, the wrong bytes
    line = refused(*RUN, "--dataset", "cifar10", "--data-dir", ".")
    assert f"{first} is damaged" in line
    assert f"instead of {checksum.digest[:12]}" in line


# ---------------------------------------------------------------- own data

LABELS = np.arange(60) % 3


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"labels": None}, "'labels'"),
        ({"images": None}, "'images'"),
        ({"labels": LABELS[:-1]}, "'labels' has shape"),
        ({"labels": LABELS - 1}, "they go from -1 to"),
        ({"labels": LABELS + 0.5}, "'labels' must be integers"),
        ({"labels": LABELS, "class_names": np.array(["a", "b"])}, "from 0 to 1; they go from 0 to 2"),
        ({"labels": LABELS * 2}, "class '1' has no training sample"),
        ({"labels": LABELS * 0}, "at least two classes"),
        ({"images": np.full((60, 8, 8), np.nan, np.float32)}, "'images' must be uint8"),
        ({"images": np.zeros((60, 4, 4), np.uint8)}, "4×4 pixels"),
        ({"images": np.zeros((0, 8, 8), np.uint8), "labels": LABELS[:0], "clients": None}, "no samples"),
        ({"clients": np.array(["a"] * 59 + [""])}, "'clients' has an empty name"),
        ({"lables": LABELS, "labels": None}, "'lables'.*Did you mean 'labels'"),
    ],
)
def test_own_arrays_that_cannot_be_used(refused: Refused, npz: Npz, changes: dict[str, Any], names: str) -> None:
    line = refused(*RUN, "--dataset", npz(**changes))
    assert "own.npz" in line or "own: " in line
    assert re.search(names, line), line


class Trap:
    """Leaves a mark if it is ever unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("sprung",)


def test_a_pickle_in_an_npz_is_refused_and_never_runs(refused: Refused, npz: Npz) -> None:
    for name in ("labels", "images", "clients"):
        line = refused(*RUN, "--dataset", npz(**{name: np.array([Trap()] * 60, dtype=object)}))
        assert "own.npz" in line and "unpickled" in line
    assert not Path("sprung").exists()


def test_a_file_that_is_no_npz(refused: Refused, npz: Npz) -> None:
    Path("text.npz").write_text("not a zip")
    assert "text.npz is not an npz file" in refused(*RUN, "--dataset", "text.npz")
    whole = npz().read_bytes()
    Path("cut.npz").write_bytes(whole[: len(whole) // 2])
    assert "cut.npz is not" in refused(*RUN, "--dataset", "cut.npz")
    assert "gone.npz" in refused(*RUN, "--dataset", "gone.npz")


def test_labels_from_a_file_that_are_out_of_range(refused: Refused) -> None:
    np.save("given.npy", np.full(1438, 10))
    words = set_("data.noise=file", "data.labels_file=given.npy", "data.noise_rate=0")
    line = refused(*RUN, *words)
    assert "given.npy" in line and "10" in line


@pytest.fixture
def images() -> Path:
    """A folder client/class/image with two clients and two classes."""
    for client in ("berlin", "são paulo"):
        for name in ("cat", "dog"):
            folder = Path("images", client, name)
            folder.mkdir(parents=True)
            for i in range(6):
                Image.new("L", (8, 8), 40 * i).save(folder / f"{i}.png")
    return Path("images")


def test_an_image_that_cannot_be_read_is_named(refused: Refused, images: Path) -> None:
    (images / "berlin" / "dog" / "3.png").write_bytes(b"broken")
    assert "images/berlin/dog/3.png cannot be read as an image" in refused(*RUN, "--dataset", images)


def test_images_of_mixed_size_are_named(refused: Refused, images: Path) -> None:
    Image.new("L", (9, 8)).save(images / "são paulo" / "cat" / "2.png")
    line = refused(*RUN, "--dataset", images)
    assert "images differ in size" in line and "images/são paulo/cat/2.png is 9×8" in line


def test_a_client_without_an_image_is_named(refused: Refused, images: Path) -> None:
    (images / "paris" / "cat").mkdir(parents=True)
    assert "client 'paris' has no image" in refused(*RUN, "--dataset", images)


def test_a_class_without_an_image_is_named(refused: Refused, images: Path) -> None:
    (images / "berlin" / "emu").mkdir()
    assert "class 'emu' has no training sample" in refused(*RUN, "--dataset", images)


def test_a_client_that_would_get_nothing_is_named(refused: Refused) -> None:
    words = set_("data.partition=authors", "data.n_clients=40", "data.n_train=100")
    assert re.search(r"client \d+ got no sample.*data\.alpha", refused(*RUN, "--alpha", "0.01", *words))


# ---------------------------------------------------------------- methods


def test_no_clean_client_names_the_way_out(refused: Refused, npz: Npz) -> None:
    path = npz(clients=LABELS)  # one class each: no client can be judged
    words = [word if word != "fedavg" else "fedsir" for word in RUN]
    line = refused(*words, "--dataset", path)
    assert "Stage I of fedsir could call no client clean" in line
    assert "data.partition" in line and "fedavg" in line


# ---------------------------------------------------------------- folders


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_out_that_is_no_run_folder(refused: Refused) -> None:
    Path("file").write_text("mine")
    assert "file is a file" in refused(*RUN[:-1], "file", *TINY)
    assert "file/below" in refused(*RUN[:-1], "file/below", *TINY)
    Path("thesis").mkdir()
    Path("thesis/chapter.tex").write_text("mine")
    assert "holds 'chapter.tex'" in refused(*RUN[:-1], "thesis", *TINY)
    assert snapshot(Path("thesis")) == {"chapter.tex": b"mine"}


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder outside of pytest's private ones that others may look into but not write to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o555)
        yield Path(folder)
        Path(folder).chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are POSIX's")
@pytest.mark.parametrize("below", ["", "run"])
def test_an_out_that_cannot_be_written(
    refused: Refused, closed: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    run_experiment = runner.run_experiment

    def without_privileges(*args: Any) -> Any:
        is_root = os.geteuid() == 0  # who may write anywhere
        if is_root:
            os.seteuid(65534)
        try:
            return run_experiment(*args)
        finally:
            if is_root:
                os.seteuid(0)

    monkeypatch.setattr(runner, "run_experiment", without_privileges)
    line = refused(*RUN[:-1], closed / below, *TINY)
    assert line == f"fedsir: Cannot use {closed / below}: Permission denied. Choose another --out."
    assert list(closed.iterdir()) == []
