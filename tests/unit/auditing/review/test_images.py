"""Pictures of samples from files, npz and parquet: upright, 8 bits, small enough; and why there is none."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fedsir.auditing.review.images import NoPicture, SampleImages, encoded, images_of, is_below


def from_folder(root: Path, *paths: str) -> SampleImages:
    return images_of({"data": {"path": str(root), "kind": "folder"}}, [(str(i), path) for i, path in enumerate(paths)])


def decoded(images: SampleImages, place: int = 0, longest: int = 4096) -> Image.Image:
    media_type, content = encoded(images, place, longest)
    image = Image.open(io.BytesIO(content))
    assert media_type == f"image/{image.format.lower()}"
    return image


def test_files_come_as_they_look(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    Image.new("RGB", (30, 20), (255, 0, 0)).save(tmp_path / "a b" / "it's #1?.png")
    image = decoded(from_folder(tmp_path, "a b/it's #1?.png"))
    assert (image.size, image.getpixel((5, 5))) == ((30, 20), (255, 0, 0))


def test_photos_are_turned_and_reduced(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # a camera that was held upright
    Image.new("RGB", (640, 320), (10, 200, 30)).save(tmp_path / "photo.jpg", exif=exif)
    assert decoded(from_folder(tmp_path, "photo.jpg")).size == (320, 640)
    small = decoded(from_folder(tmp_path, "photo.jpg"), longest=112)
    assert small.format == "JPEG"
    assert max(small.size) == 112


def test_sixteen_bits_show_their_whole_range(tmp_path: Path) -> None:
    Image.fromarray(np.array([[100, 200], [300, 400]], np.uint16)).save(tmp_path / "x-ray.png")
    assert np.asarray(decoded(from_folder(tmp_path, "x-ray.png"))).tolist() == [[0, 85], [170, 255]]


@pytest.mark.parametrize(
    ("mode", "suffix", "shown"),
    [("P", "gif", "RGB"), ("CMYK", "jpg", "RGB"), ("1", "png", "L"), ("RGBA", "png", "RGBA"), ("L", "tif", "L")],
)
def test_other_kinds_of_image_are_shown(tmp_path: Path, mode: str, suffix: str, shown: str) -> None:
    Image.new(mode, (12, 9)).save(tmp_path / f"x.{suffix}")
    image = decoded(from_folder(tmp_path, f"x.{suffix}"))
    assert (image.mode, image.size) == (shown, (12, 9))


def test_a_damaged_or_missing_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("not an image")
    whole = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(whole, "PNG")
    (tmp_path / "cut.png").write_bytes(whole.getvalue()[:900])
    (tmp_path / "folder.png").mkdir()
    images = from_folder(tmp_path, "text.png", "cut.png", "gone.png", "folder.png")
    for place, words in enumerate(
        (
            "damaged: text.png is not an image",
            "damaged: cut.png cannot be read",
            "missing: there is no gone.png",
            "not a file",
        )
    ):
        with pytest.raises(NoPicture, match=words):
            images.picture(place, 100)


@pytest.mark.parametrize(
    "path",
    ["../secret.png", "a/../../secret.png", "/etc/secret.png", "C:/secret.png", "a\\..\\secret.png", "x\0.png", ""],
)
def test_a_path_out_of_the_data_is_not_followed(tmp_path: Path, path: str) -> None:
    Image.new("L", (8, 8)).save(tmp_path / "secret.png")
    (tmp_path / "data" / "a").mkdir(parents=True)
    assert not is_below(path)
    with pytest.raises(NoPicture, match="does not lie in the data's folder"):
        from_folder(tmp_path / "data", "a.png", path).picture(1, 100)


@pytest.mark.parametrize("ids", [None, ["x0", "x1", "x2"]])
@pytest.mark.parametrize("shape", [(3, 8, 9), (3, 8, 9, 1), (3, 8, 9, 3)])
def test_rows_of_an_npz_file_are_found_by_id(tmp_path: Path, shape: tuple[int, ...], ids: list[str] | None) -> None:
    pixels = np.zeros(shape, np.uint8) + np.array([10, 20, 30], np.uint8).reshape(3, *[1] * (len(shape) - 1))
    named: dict[str, Any] = {} if ids is None else {"ids": np.array(ids)}
    np.savez_compressed(tmp_path / "data.npz", images=pixels, **named)
    wanted = [("2", ""), ("0", "")] if ids is None else [("x2", ""), ("x0", "")]
    images = images_of({"data": {"path": str(tmp_path / "data.npz"), "kind": "npz"}}, wanted)
    for place, value in enumerate((30, 10)):
        image = decoded(images, place)
        assert (image.size, np.unique(np.asarray(image)).tolist()) == ((9, 8), [value])


@pytest.mark.parametrize("is_struct", [False, True])
def test_rows_of_a_parquet_file_are_found_by_id(tmp_path: Path, is_struct: bool) -> None:
    contents = []
    for value in (10, 20, 30):
        content = io.BytesIO()
        Image.new("L", (9, 8), value).save(content, "PNG")
        contents.append(content.getvalue())
    contents[1] = b"rubbish"
    column = [{"bytes": content, "path": None} for content in contents] if is_struct else contents
    pq.write_table(pa.table({"image": column, "id": [7, 8, 9]}), tmp_path / "data.parquet")
    images = images_of({"data": {"path": str(tmp_path / "data.parquet"), "kind": "parquet"}}, [("9", ""), ("8", "")])
    assert decoded(images, 0).getpixel((0, 0)) == 30
    with pytest.raises(NoPicture, match="damaged"):
        images.picture(1, 100)


@pytest.mark.parametrize(("kind", "suffix"), [("npz", "npz"), ("parquet", "parquet")])
def test_data_that_are_gone_or_have_changed_are_told_for_each_sample(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"data.{suffix}"
    audit = {"data": {"path": str(path), "kind": kind}}
    np.savez(tmp_path / "other.npz", images=np.zeros((2, 8, 8), np.uint8))
    pq.write_table(pa.table({"image": [b"", b""]}), tmp_path / "other.parquet")
    for content in (None, b"rubbish", (tmp_path / f"other.{suffix}").read_bytes()):
        if content is not None:
            path.write_bytes(content)
        images = images_of(audit, [("5", "")])
        assert images.has_any
        with pytest.raises(NoPicture, match=f"cannot be read from .*data.{suffix}"):
            images.picture(0, 100)


def test_features_have_no_pictures_unless_their_paths_lead_to_some(tmp_path: Path) -> None:
    audit = {"data": {"path": str(tmp_path / "features.npz"), "kind": "features"}}
    assert not images_of(audit, [("0", "")]).has_any
    assert not images_of({"data": {"path": None, "kind": "features"}}, [("0", "")]).has_any
    assert not images_of({}, []).has_any
    Image.new("L", (9, 8)).save(tmp_path / "x.png")
    assert decoded(images_of(audit, [("0", "x.png")])).size == (9, 8)


def test_data_that_were_moved_are_found_where_they_are_now(tmp_path: Path) -> None:
    Image.new("L", (9, 8)).save(tmp_path / "x.png")
    audit = {"data": {"path": "/gone", "kind": "folder"}}
    assert decoded(images_of(audit, [("0", "x.png")], tmp_path)).size == (9, 8)
