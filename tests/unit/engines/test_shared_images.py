"""Images that processes share: one file, once."""

import copy
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import Any

import numpy as np
import pytest

from fedsir.engines.shared_images import shared
from fedsir.errors import RunFolderError

IMAGES = np.arange(5 * 3 * 8 * 8, dtype=np.uint8).reshape(5, 3, 8, 8)


def sent(images: Any) -> Any:
    return pickle.loads(ForkingPickler.dumps(images))  # as a worker process receives it


def test_a_worker_gets_the_same_images_read_only() -> None:
    images = shared(IMAGES)
    received = sent(images)
    assert np.array_equal(received, IMAGES)
    assert len(ForkingPickler.dumps(images)) < 300 < IMAGES.nbytes  # a file's number, not what is in it
    for array in (images, received):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_images_that_are_shared_are_not_copied_again() -> None:
    images = shared(IMAGES)
    assert shared(images) is images
    assert shared(received := sent(images)) is received


def test_a_part_of_shared_images_is_an_array_like_any_other() -> None:
    part = shared(IMAGES)[1:3]
    assert np.array_equal(sent(part), IMAGES[1:3])
    assert np.array_equal(sent(shared(part)), IMAGES[1:3])
    assert np.array_equal(copy.deepcopy(shared(IMAGES)), IMAGES)


def test_no_room_for_shared_images_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    with pytest.raises(RunFolderError, match=r"No space left on device\. Make room, .* TMPDIR, or use --workers 1"):
        shared(IMAGES)
