import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from fedsir.data.client import ClientData
from fedsir.data.config import DataConfig
from fedsir.data.dealing import build_federation
from fedsir.data.noise_rate import rate_of_client
from fedsir.data.source import Source, make_source
from fedsir.engines.client_store import ClientStore
from fedsir.errors import ConfigError, DataError
from fedsir.randomness import KeyedRandom

N, C = 300, 3


def source(*, clients: bool = False, is_benchmark: bool = True) -> Source:
    """Return images whose first two pixels hold the sample's number, so that none can be mixed up."""
    labels = np.arange(N) % C
    images = np.zeros((N, 1, 8, 8), np.uint8)
    images[:, 0, 0, 0], images[:, 0, 0, 1] = np.arange(N) // 256, np.arange(N) % 256
    names = np.array([f"site-{i % 4}" for i in range(N + 60)]) if clients else None
    return make_source(
        "small",
        np.concatenate([images, images[:60]]),
        np.concatenate([labels, labels[:60]]),
        ("a", "b", "c"),
        is_test=np.arange(N + 60) >= N,
        flip=False,
        crop_padding=1,
        clients=names,
        is_benchmark=is_benchmark,
    )


def test_samples_keep_their_images_labels_and_owners() -> None:
    data = build_federation(DataConfig(n_clients=4, noise_rate=0.5, noisy_clients=2), source(), seed=1)
    truth = data.truth
    images = data.images[data.image_rows]
    numbers = images[:, 0, 0, 0].astype(int) * 256 + images[:, 0, 0, 1]
    assert (numbers == data.source_index).all()
    assert sorted(data.source_index.tolist()) == list(range(N))
    assert (truth.true_labels == data.source_index % C).all()
    assert data.clients == ("0", "1", "2", "3")
    assert data.offsets[0] == 0
    assert data.offsets[-1] == N
    assert sum(data.size_by_client.values()) == N
    assert data.counts().sum(axis=1).tolist() == list(data.size_by_client.values())
    assert (data.n_classes, data.channels, data.image_size) == (3, 1, (8, 8))
    rates = data.noise_by_client()
    assert rates is not None
    assert all(0.4 < rates[k] < 0.6 for k in truth.noisy_clients)


def test_the_same_seed_gives_the_same_federation() -> None:
    config = DataConfig(n_clients=4, noise_rate=0.5, noisy_clients=2)
    hashes = [build_federation(config, source(), seed=seed).sha256 for seed in (1, 1, 2)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_own_clients_are_used_unless_another_partition_is_named() -> None:
    data = build_federation(DataConfig(), source(clients=True), seed=0)
    assert data.clients == ("site-0", "site-1", "site-2", "site-3")
    assert (data.source_index[data.rows("site-2")] % 4 == 2).all()
    dealt = build_federation(DataConfig(partition="iid", n_clients=5), source(clients=True), seed=0)
    assert dealt.clients == ("0", "1", "2", "3", "4")
    with pytest.raises(ConfigError, match="by_column"):
        build_federation(DataConfig(partition="by_column"), source(), seed=0)


@pytest.mark.parametrize("settings", [{}, {"noise": "none"}, {"noise_rate": 0.5, "noisy_clients": "none"}])
def test_without_added_noise_a_benchmark_is_known_to_be_clean(settings: dict[str, object]) -> None:
    data = build_federation(DataConfig(**settings), source(), seed=0)
    truth = data.truth
    assert truth.is_known
    assert truth.clean_clients == data.clients
    assert truth.noisy_clients == ()
    assert (truth.true_labels == data.given_labels).all()
    assert truth.transition.sum() == 0


def test_without_added_noise_nobody_knows_about_own_data() -> None:
    data = build_federation(DataConfig(), source(clients=True, is_benchmark=False), seed=0)
    truth = data.truth
    assert (truth.is_known, truth.true_labels, truth.clean_clients, truth.noisy_clients) == (
        False,
        None,
        (),
        (),
    )
    assert data.noise_by_client() is None


def test_noise_added_to_own_data_is_known() -> None:
    config = DataConfig(noise_rate=0.4, noisy_clients="site-1,site-3")
    data = build_federation(config, source(clients=True, is_benchmark=False), seed=0)
    truth = data.truth
    assert truth.is_known
    assert truth.noisy_clients == ("site-1", "site-3")
    # 75 samples a client, 25 of each class: 10 of each are flipped.
    assert data.noise_by_client() == {"site-0": 0, "site-1": 0.4, "site-2": 0, "site-3": 0.4}
    assert truth.transition.sum(axis=1).tolist() == [50, 50, 50]
    assert truth.transition.diagonal().tolist() == [30, 30, 30]


def test_every_client_draws_its_own_rate_from_a_range() -> None:
    config = DataConfig(noise_rate=(0.1, 0.9), noisy_clients="site-1,site-3")
    data = build_federation(config, source(clients=True), seed=0)
    drawn = [rate_of_client((0.1, 0.9), KeyedRandom(0, ("data", "noise rate", name))) for name in ("site-1", "site-3")]
    # 25 of each of three classes.
    assert data.noise_by_client() == {
        "site-0": 0,
        "site-1": realised(drawn[0]),
        "site-2": 0,
        "site-3": realised(drawn[1]),
    }
    assert abs(drawn[0] - drawn[1]) > 0.1 and data.notes == ()


def realised(rate: float) -> float:
    return 3 * round(25 * rate) / 75


def test_a_chosen_client_without_a_wrong_label_is_clean_and_noted() -> None:
    config = DataConfig(noise_rate=0.001, noisy_clients="site-1,")
    data = build_federation(config, source(clients=True), seed=0)
    truth = data.truth
    assert truth.noisy_clients == ()
    assert truth.clean_clients == data.clients
    assert data.notes == ("client 'site-1' was chosen to be noisy, but none of its labels turned out wrong",)


def test_a_subset_keeps_the_shares_of_classes_and_clients() -> None:
    config = DataConfig(n_train=60, n_test=7)
    data = build_federation(config, source(clients=True), seed=0)
    assert np.bincount(data.given_labels).tolist() == [20, 20, 20]
    assert list(data.size_by_client.values()) == [15, 15, 15, 15]
    assert sorted(np.bincount(data.test_labels).tolist()) == [2, 2, 3]
    for settings, says in [
        ({"n_train": 301}, "n_train = 301"),
        ({"n_train": 2}, r"from 3 \(one per class\)"),
        ({"n_test": 61}, "n_test = 61"),
        ({"n_train": 3}, "no sample: raise it"),
    ]:
        with pytest.raises(ConfigError, match=says):
            build_federation(DataConfig(**settings), source(clients=True), seed=0)


def test_noise_by_matrix() -> None:
    matrix = [[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.2, 0.0, 0.8]]
    config = DataConfig(noise="matrix", transition=matrix, noisy_clients=("site-0",))
    truth = build_federation(config, source(clients=True), seed=0).truth
    assert truth.transition.tolist() == [[20, 5, 0], [0, 25, 0], [5, 0, 20]]
    with pytest.raises(ConfigError, match="2 rows, but small has 3 classes"):
        build_federation(DataConfig(noise="matrix", transition=[[1, 0], [0, 1]]), source(), seed=0)


def test_asymmetric_noise_needs_a_map() -> None:
    config = DataConfig(noise="asymmetric", noise_rate=1.0, noisy_clients="all", n_clients=3)
    with pytest.raises(ConfigError, match="use pair, or matrix"):
        build_federation(config, source(), seed=0)
    truth = build_federation(config, replace(source(), confused_with=(0, 2, 1)), seed=0).truth
    assert truth.transition.tolist() == [[100, 0, 0], [0, 0, 100], [0, 100, 0]]


@pytest.mark.parametrize("kind", ["npy", "npz", "csv", "header.csv", "names.csv"])
def test_noise_from_a_file(tmp_path: Path, kind: str) -> None:
    labels, path = (np.arange(N) + 1) % C, tmp_path / f"labels.{kind}"
    if kind == "npy":
        np.save(path, labels)
    elif kind == "npz":
        np.savez(path, labels=labels, other=labels)
    elif kind == "csv":
        path.write_text("\n".join(map(str, labels)))
    elif kind == "header.csv":
        path.write_text("name,Label\n" + "\n".join(f"x,{label}" for label in labels))
    else:
        path.write_text("\n".join("abc"[label] for label in labels))
    config = DataConfig(noise="file", labels_file=str(path), noisy_clients=("site-2",), n_train=150)
    data = build_federation(config, source(clients=True), seed=0)
    truth = data.truth
    rows = data.rows("site-2")
    assert (data.given_labels[rows] == (data.source_index[rows] + 1) % C).all()
    assert truth.noisy_clients == ("site-2",)
    assert data.noise_by_client() == {"site-0": 0, "site-1": 0, "site-2": 1, "site-3": 0}


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.txt", b"", "must be an npz, npy or csv"),
        ("x.npy", None, "cannot be read"),
        ("x.npy", b"junk", "cannot be read"),
        ("x.npz", b"junk", "cannot be read"),
        ("x.csv", b"0\n1\n", r"shape \(2,\), but there are 300"),
        ("x.csv", b"\xff\xfe", "cannot be read"),
        ("x.csv", b"", "shape"),
        ("x.csv", b"a,b\n", "none is headed 'label'"),
        ("x.csv", b"0\n" * 299 + b"3\n", "from 0 to 2; they go from 0 to 3"),
        ("x.csv", b"a\n" * 299 + b"d\n", "'d', which is not the name"),
    ],
)
def test_bad_label_files_are_refused(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    config = DataConfig(noise="file", labels_file=str(tmp_path / name), noisy_clients="all")
    with pytest.raises(DataError, match=says):
        build_federation(config, source(), seed=0)


def test_label_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")  # opening it would wait for ever
    (tmp_path / "long.csv").write_text("9" * 5000)
    (tmp_path / "large.csv").write_text("9" * 50)
    np.save(tmp_path / "cut.npy", np.arange(N))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "cut.npy").read_bytes()[:-8])
    np.save(tmp_path / "pickled.npy", np.array([None] * N))
    for name in ("pipe.csv", "long.csv", "large.csv", "cut.npy", "pickled.npy"):
        config = DataConfig(noise="file", labels_file=str(tmp_path / name), noisy_clients="all")
        with pytest.raises(DataError, match=f"labels_file .*{name} cannot be read"):
            build_federation(config, source(), seed=0)


def test_a_client_is_handed_given_labels_only() -> None:
    data = build_federation(DataConfig(n_clients=3, noise_rate=1.0, noisy_clients="all"), source(), seed=0)
    truth = data.truth
    held = ClientStore.of(data).client_data("1")
    assert len(held) == data.size_by_client["1"]
    assert held.labels.tolist() == data.given_labels[data.rows("1")].tolist()
    assert held.labels.tolist() != truth.true_labels[data.rows("1")].tolist()
    assert held.images.shape == (len(held), 1, 8, 8)
    assert not any("true" in field.name for field in fields(ClientData))


def test_everything_but_the_client_type_works_without_torch() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from fedsir.data.config import DataConfig\n"
        "from fedsir.data.source import load_source\n"
        "from fedsir.data.dealing import build_federation\n"
        "import fedsir.data.cifar, fedsir.data.own_folder, fedsir.data.own_npz, fedsir.data.directory\n"
        "source = load_source('digits', data_dir=Path('x'), seed=0)\n"
        "build_federation(DataConfig(noise_rate=0.5), source, seed=0)\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------- many clients of few samples


def test_clients_chosen_in_vain_are_counted_when_they_are_many() -> None:
    # 150 clients of 2 samples, mostly of two classes: a fifth of one sample rounds to none.
    config = DataConfig(n_clients=150, partition="iid", noise_rate=0.2, noisy_clients=100)
    data = build_federation(config, source(), seed=0)
    truth = data.truth
    in_vain, rate = data.notes
    assert in_vain.endswith(", …) were chosen to be noisy, but none of their labels is wrong")
    n_in_vain = int(in_vain.split()[0])
    assert n_in_vain == 100 - len(truth.noisy_clients) > 50
    assert rate == (
        "0% of the noisy clients' labels are wrong, not 20% as data.noise_rate says: each client rounds it class by "
        "class, and many have few samples of a class"
    )


def test_a_rate_that_comes_out_right_needs_no_note() -> None:
    for noise in ("symmetric", "pair"):
        config = DataConfig(n_clients=4, noise=noise, noise_rate=0.5, noisy_clients=2)
        assert build_federation(config, source(), seed=0).notes == ()
    assert build_federation(DataConfig(n_clients=4, noise_rate=0.5, noisy_clients="none"), source(), seed=0).notes == ()


def test_a_cover_that_cannot_be_says_what_there_is() -> None:
    config = DataConfig(n_clients=100, partition="iid", noise_rate=0.5)
    message = r"no client has 9 samples of any class \(the most is 3\).*data.noisy_clients = 70, for instance"
    with pytest.raises(ConfigError, match=message):
        build_federation(config, source(), seed=0)


def test_clients_without_samples_are_counted() -> None:
    config = DataConfig(n_clients=200, partition="authors", alpha=0.5)
    with pytest.raises(DataError, match=r"got no sample.*\(\d+ of 200 clients got none\).*dirichlet, which fills"):
        build_federation(config, source(), seed=0)
