"""What can be audited: folders, npz and parquet files, with images and with features; and what is wrong with others."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedsir.auditing.apply import apply_audit
from fedsir.auditing.condition import parse_condition
from fedsir.auditing.folder import AuditFolder, AuditFolderError
from fedsir.auditing.from_files import audit_files
from fedsir.auditing.sources import read_data
from fedsir.errors import ConfigError, DataError, FedsirError

Make = Callable[..., Any]
OWN = "own_extractor:MeanColours"
COLOURS = {"red": (200, 30, 30), "green": (30, 200, 30), "blue": (30, 30, 200)}


@pytest.fixture
def images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[np.ndarray], list[str], list[str]]]:
    """Return a function that makes coloured images, labels and clients; one site's labels are turned at random."""
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.setenv("FEDSIR_DATA", str(tmp_path / "cache"))

    def make(n_sites: int = 4, each: int = 45) -> tuple[list[np.ndarray], list[str], list[str]]:
        random = np.random.default_rng(0)
        pixels, labels, clients = [], [], []
        names = list(COLOURS)
        for site in range(n_sites):
            for i in range(each):
                colour = names[i % 3]
                side = int(random.integers(20, 40))
                noise = random.normal(size=(side, side + 4, 3)) * 10 + random.normal(size=3) * 12
                pixels.append((np.array(COLOURS[colour]) + noise).clip(0, 255).astype(np.uint8))
                is_turned = site == 1 and random.random() < 0.4
                labels.append(names[(i + 1) % 3] if is_turned else colour)
                clients.append(f"site {site}")
        return pixels, labels, clients

    return make


def in_folders(root: Path, pixels: list[np.ndarray], labels: list[str], clients: list[str]) -> Path:
    for i, (image, label, client) in enumerate(zip(pixels, labels, clients, strict=True)):
        path = root / client / label / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return root


def test_a_folder_of_images_of_any_sizes(images: Make, tmp_path: Path) -> None:
    data = in_folders(tmp_path / "data", *images())
    told: list[tuple[int, int]] = []
    out = tmp_path / "audit"
    result, origin = audit_files(data, out, extractor=OWN, progress=lambda done, n: told.append((done, n)))
    assert result.clients["client"][result.clients["verdict"] == "noisy"].tolist() == ["site 1"]
    assert told[-1] == (180, 180)
    folder = AuditFolder(out)
    assert folder.audit["data"] == {"path": str(data.resolve()), "kind": "folder"}
    assert folder.audit["features"]["name"] == OWN and folder.audit["features"]["image_size"] == 32
    worst = next(iter(folder.samples("site 1").rows()))
    assert worst["id"] == worst["path"] and (data / worst["path"]).is_file()
    page = (folder.client_folder("site 1") / "report.html").read_text(encoding="utf-8")
    assert "data:image/" in page, "thumbnails are inside the client's own page"
    assert "data:image/png;base64" not in (out / "report.html").read_text(encoding="utf-8")
    # Looked up, not computed again.
    again, second = audit_files(data, tmp_path / "again", extractor=OWN, progress=lambda *_: pytest.fail("computed"))
    assert second.details["kept_at"] == origin.details["kept_at"]
    np.testing.assert_array_equal(again.samples["score"], result.samples["score"])
    Path(origin.details["kept_at"]).write_bytes(b"damaged")
    repaired, _ = audit_files(data, tmp_path / "third", extractor=OWN)
    np.testing.assert_array_equal(repaired.samples["score"], result.samples["score"])


def test_new_labels_become_a_folder_to_train_on(
    images: Make, tmp_path: Path, contents: Callable[[Path], dict[str, bytes]]
) -> None:
    data = in_folders(tmp_path / "data", *images())
    result, _ = audit_files(data, tmp_path / "audit", extractor=OWN)
    before, folder = contents(data), AuditFolder(tmp_path / "audit")
    apply_audit(folder, parse_condition("score<0.5"), images=tmp_path / "new")
    assert contents(data) == before
    sorted_anew = read_data(tmp_path / "new")
    assert len(sorted_anew.labels) == 180
    suggested = dict(zip(result.samples["path"], result.samples["suggested_label"], strict=True))
    expected = sorted((path.split("/")[0], label, Path(path).name) for path, label in suggested.items())
    assert sorted_anew.paths is not None
    assert sorted(tuple(path.split("/")) for path in sorted_anew.paths) == expected
    for wrong, message in ((tmp_path / "new", "is there already"), (data / "in", "lies inside the audited data")):
        with pytest.raises(AuditFolderError, match=message):
            apply_audit(folder, parse_condition("score<0.5"), images=wrong)


def test_corrupt_images_are_skipped_and_listed_up_to_a_share(images: Make, tmp_path: Path) -> None:
    data = in_folders(tmp_path / "data", *images())
    broken = sorted((data / "site 2" / "red").iterdir())[:3]
    broken[0].write_bytes(b"not an image")
    broken[1].write_bytes(b"")
    broken[2].write_bytes(broken[2].read_bytes()[:60])
    result, origin = audit_files(data, tmp_path / "audit", extractor=OWN)
    assert result.samples.n_rows == 177 and len(origin.skipped["site 2"]) == 3
    listed = (AuditFolder(tmp_path / "audit").client_folder("site 2") / "skipped.csv").read_text(encoding="utf-8")
    assert listed.splitlines()[0] == "path,reason" and "site 2/red/" in listed and "cannot be read" in listed
    with pytest.raises(DataError, match=r"3 of 180 images cannot be read, more than --max-corrupt 0.01.*site 2/red"):
        audit_files(data, tmp_path / "other", extractor=OWN, max_corrupt=0.01)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ConfigError, match="max_corrupt: must be a share"):
        audit_files(data, tmp_path / "other", extractor=OWN, max_corrupt=2)


def test_images_in_an_npz_and_in_a_parquet_file_give_the_same(images: Make, tmp_path: Path) -> None:
    pixels, labels, clients = images()
    same_size = np.stack([np.array(Image.fromarray(image).resize((32, 32))) for image in pixels])
    np.savez(tmp_path / "d.npz", images=same_size, labels=labels, clients=clients)
    encoded = []
    for image in same_size:
        buffer = io.BytesIO()
        Image.fromarray(image).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    table = {"image": encoded, "label": labels, "client": clients, "id": [f"x{i}" for i in range(len(labels))]}
    pq.write_table(pa.table(table), tmp_path / "d.parquet")
    of_struct = table | {"image": [{"bytes": content, "path": None} for content in encoded[:-1]] + [None]}
    pq.write_table(pa.table(of_struct), tmp_path / "s.parquet")
    npz, origin = audit_files(tmp_path / "d.npz", tmp_path / "a", extractor=OWN)
    parquet, _ = audit_files(tmp_path / "d.parquet", tmp_path / "b", extractor=OWN)
    np.testing.assert_allclose(npz.samples["score"], parquet.samples["score"])
    assert origin.kind == "npz" and npz.samples["id"][3] == "3" and parquet.samples["id"][3] == "x3"
    structs, origin = audit_files(tmp_path / "s.parquet", tmp_path / "c", extractor=OWN)
    assert structs.samples.n_rows == 179 and origin.skipped == {"site 3": [("179", "there is no image")]}


def test_features_in_parquet_as_lists_or_as_columns(sites: Make, tmp_path: Path) -> None:
    data = sites()
    columns = {"label": data.given, "client": data.clients, "path": [f"{i}.png" for i in range(len(data.given))]}
    pq.write_table(pa.table({"features": list(data.features), **columns}), tmp_path / "lists.parquet")
    numbered = {f"f{i}": data.features[:, i] for i in reversed(range(data.features.shape[1]))}
    categories = {**columns, "label": pa.array(data.given).dictionary_encode()}
    pq.write_table(pa.table(numbered | categories), tmp_path / "columns.parquet")
    expected = read_data(data.saved(tmp_path / "d.npz")).features
    for name in ("lists", "columns"):
        found = read_data(tmp_path / f"{name}.parquet")
        np.testing.assert_array_equal(found.features, expected)
        assert found.labels.tolist() == data.given.tolist() and found.kind == "features"
        assert found.paths is not None and found.paths[3] == "3.png"


def test_class_names_of_an_npz_file_are_used(sites: Make, tmp_path: Path) -> None:
    data = sites()
    names, numbers = np.unique(data.given, return_inverse=True)
    found = read_data(data.saved(tmp_path / "d.npz", labels=numbers, class_names=names))
    assert found.labels.tolist() == data.given.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": np.full(300, "only")}, "nobody to compare it with"),
        ({"labels": np.full(300, "cat")}, "labels: all are 'cat'"),
        ({"features": np.full((300, 4), np.nan)}, "row 0 holds NaN"),
        ({"features": np.zeros((300, 0))}, "no columns"),
        ({"features": np.zeros(300)}, "shape"),
        ({"ids": np.full(300, "x")}, "'x' names 300 samples"),
        ({"paths": np.full(300, "a\nb")}, "not readable text"),
        ({"labels": np.array([{"a": 1}] * 300, object)}, "never unpickled"),
        ({"features": np.zeros((300, 2), object)}, "never unpickled"),
        ({"clients": np.full(299, "x")}, "give one for each"),
        ({"labels": np.linspace(0, 1, 300)}, "give whole numbers or names"),
    ],
)
def test_bad_npz_files_are_one_clear_line(sites: Make, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = sites().saved(tmp_path / "d.npz", **change)
    with pytest.raises(DataError, match=message):
        audit_files(path, tmp_path / "audit")
    assert not (tmp_path / "audit").exists()


def test_other_files_are_refused_with_what_they_lack(sites: Make, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.zeros((3, 2)), labels=[0, 1, 0], client=[0, 1, 2])
    with pytest.raises(DataError, match=r"no array called 'clients'.*'client'"):
        read_data(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", labels=[0, 1, 0], clients=[0, 1, 2])
    with pytest.raises(DataError, match="no 'features' and no 'images'"):
        read_data(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(DataError, match="not an npz file"):
        read_data(tmp_path / "c.npz")
    (tmp_path / "d.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match="not a readable parquet file"):
        read_data(tmp_path / "d.parquet")
    pq.write_table(pa.table({"label": [0], "klient": [1], "f0": [0.5]}), tmp_path / "e.parquet")
    with pytest.raises(DataError, match=r"no column 'client'.*Did you mean 'klient'"):
        read_data(tmp_path / "e.parquet")
    uneven = {"label": [0, 1], "client": [1, 2], "features": [[1.0], [1.0, 2.0]]}
    pq.write_table(pa.table(uneven), tmp_path / "f.parquet")
    with pytest.raises(DataError, match="from 1 to 2 numbers"):
        read_data(tmp_path / "f.parquet")
    pq.write_table(pa.table({"label": [0, 1], "client": [1, 2], "f0": [1.0, None]}), tmp_path / "g.parquet")
    with pytest.raises(DataError, match="'f0' lacks 1 numbers"):
        read_data(tmp_path / "g.parquet")
    pq.write_table(pa.table({"label": [0, 1], "client": [1, 2], "image": ["a", "b"]}), tmp_path / "h.parquet")
    with pytest.raises(DataError, match="'image' must hold encoded images"):
        read_data(tmp_path / "h.parquet")
    (tmp_path / "x.txt").touch()
    for path, message in ((tmp_path / "x.txt", "give a folder"), (tmp_path / "nowhere", "there is no file or folder")):
        with pytest.raises(DataError, match=message):
            read_data(path)


def test_odd_file_names(images: Make, tmp_path: Path) -> None:
    pixels, labels, clients = images()
    data = in_folders(tmp_path / "data", pixels, labels, clients)
    odd = data / "site 0" / "red" / 'it\'s "=1+1", <b>ü,.png'
    Image.fromarray(pixels[0]).save(odd, "PNG")
    result, _ = audit_files(data, tmp_path / "audit", extractor=OWN)
    assert odd.relative_to(data).as_posix() in AuditFolder(tmp_path / "audit").samples("site 0")["path"].tolist()
    assert result.samples.n_rows == 181
    for name in (b"line\nbreak.png", b"\xff\xfe.png", b"\x1b[2J.png"):
        path = Path(str(data / "site 0" / "red") + "/" + name.decode(errors="surrogateescape"))
        Image.fromarray(pixels[0]).save(path, "PNG")
        with pytest.raises(DataError, match="not readable text"):
            audit_files(data, tmp_path / "audit", extractor=OWN)
        path.unlink()


def test_extractors_that_cannot_be_used(images: Make, tmp_path: Path) -> None:
    data = in_folders(tmp_path / "data", *images())
    with pytest.raises(DataError, match=r"no ImageNet weights in .*cache: --download fetches resnet18-f37072fd.pth"):
        audit_files(data, tmp_path / "audit")
    for extractor, message in (("vgg", "give 'resnet18' or MODULE:CLASS"), ("no_such:Thing", "cannot be imported")):
        with pytest.raises(FedsirError, match=message):
            audit_files(data, tmp_path / "audit", extractor=extractor)
    one = in_folders(tmp_path / "one", *(part[:45] for part in images()))
    with pytest.raises(DataError, match="all clients are 'site 0'; an audit compares"):
        audit_files(one, tmp_path / "audit", extractor=OWN)
    assert not (tmp_path / "audit").exists()
