"""Images small enough for a page."""

import base64
import io

import numpy as np
from PIL import Image

from fedsir.report.pictures import LONGEST_SIDE, Grid, Shown, picture, picture_of_array


def decoded(source: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(source.partition(",")[2])))


def test_small_images_keep_their_pixels() -> None:
    pixels = np.arange(64, dtype=np.uint8).reshape(1, 8, 8)
    made = picture_of_array(pixels)
    assert made.source.startswith("data:image/png;base64,")
    assert made.is_small
    assert np.asarray(decoded(made.source)).tolist() == pixels[0].tolist()
    colour = np.random.default_rng(0).integers(0, 256, (3, 9, 7), dtype=np.uint8)
    found = np.asarray(decoded(picture_of_array(colour).source))
    assert found.transpose(2, 0, 1).tolist() == colour.tolist()


def test_large_and_transparent_images_shrink() -> None:
    made = picture(Image.new("RGBA", (1000, 500), (0, 0, 0, 0)))
    assert (made.width, made.height) == (LONGEST_SIDE, LONGEST_SIDE // 2)
    assert made.source.startswith("data:image/jpeg;base64,")
    assert decoded(made.source).getpixel((3, 3)) == (255, 255, 255)


def test_a_grid_knows_what_can_be_chosen() -> None:
    one = picture_of_array(np.zeros((1, 8, 8), np.uint8))
    grid = Grid((Shown(one, "1", "b", "cat", "dog"), Shown(one, "2", "a", "ant", "dog", judged="right")))
    assert grid.clients == ["a", "b"]
    assert grid.given == ["ant", "cat"]
    assert grid.judgements
