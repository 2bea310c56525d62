"""What the readers of a user's own data share: the test part, the augmentation, the checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedsir.data.source import Source, make_source
from fedsir.data.stratify import hold_out_fifth
from fedsir.errors import DataError
from fedsir.randomness import KeyedRandom

if TYPE_CHECKING:
    import numpy.typing as npt

    from fedsir.data.arrays import Images, Labels, Names
    from fedsir.data.resize import Size

PHOTO_SIDE = 64  # pixels; above it a run that was not told a size gets the advice to set one


def own_source(
    name: str,
    images: Images,
    labels: Labels,
    class_names: tuple[str, ...],
    *,
    seed: int,
    clients: Names | None = None,
    is_test: npt.NDArray[np.bool_] | None = None,
    sample_names: tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    flip: bool = False,
    crop_padding: int | None = None,
    test_labels: Labels | None = None,
) -> Source:
    """Return a `Source` of own data; without ``is_test``, a stratified fifth is held out for testing.

    Parameters
    ----------
    images : (n, channels, height, width)
    labels, clients, is_test, sample_names : one entry per image; without names, samples are called by their number
    flip : off unless asked for: nobody but the user knows whether a mirrored image means the same
    crop_padding : an eighth of the height if not given
    test_labels : one per image, what test images are judged by, where that is not ``labels``
    """
    if is_test is None:
        is_test = np.zeros(len(labels), bool)
        is_test[hold_out_fifth(labels, KeyedRandom(seed, ("data", "hold out")), clients)] = True
        if not is_test.any():
            raise DataError(
                f"{name}: too few samples to hold out a fifth for testing; "
                "add some, or say which samples are for testing"
            )
    return make_source(
        name,
        images,
        labels if test_labels is None else np.where(is_test, test_labels, labels),
        class_names,
        is_test=is_test,
        flip=flip,
        crop_padding=images.shape[2] // 8 if crop_padding is None else crop_padding,
        clients=clients,
        sample_names=sample_names or tuple(map(str, range(len(labels)))),
        notes=notes,
    )


def size_note(images: Images, size: Size | None) -> tuple[str, ...]:
    """Return advice on images (n, channels, height, width) that are large because nobody said otherwise."""
    height, width = images.shape[2:]
    if size is not None or max(height, width) <= PHOTO_SIDE:
        return ()
    return (
        f"images are {height}×{width} pixels, and each pixel costs time and memory: data.image_size = {PHOTO_SIDE} "
        "would shrink them",
    )
