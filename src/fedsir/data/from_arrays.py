"""A federation from arrays in memory: NumPy, torch, pandas or plain lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fedsir.data.arrays import as_array
from fedsir.data.federation import FederatedData, assemble
from fedsir.data.naming import named_entries, natural_order, readable_name
from fedsir.data.npy import PIECE
from fedsir.data.own_data import own_source
from fedsir.data.partition import by_column
from fedsir.data.resize import Size, gather
from fedsir.data.source import SMALLEST_SIDE
from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    from fedsir.data.arrays import Images, Labels


def federation_from_arrays(
    images: Any,
    labels: Any,
    clients: Any,
    *,
    test: tuple[Any, Any] | None,
    true_labels: Any,
    class_names: Sequence[str] | None,
    name: str,
    seed: int,
    flip: bool,
    crop_padding: int | None,
    image_size: int | tuple[int, int] | None,
) -> FederatedData:
    """Return what `FederatedData.from_arrays` promises."""
    if crop_padding is not None and crop_padding < 0:
        raise DataError(f"crop_padding = {crop_padding}: must be 0 or more")
    pixels = [as_images("images", images, image_size)]
    given = [_names("labels", labels, len(pixels[0]))]
    owners = _names("clients", clients, len(pixels[0]))
    if test is not None:
        if not isinstance(test, tuple | list) or len(test) != 2:
            raise DataError("test: give a pair, (images, labels)")
        pixels.append(as_images("test images", test[0], image_size))
        given.append(_names("test labels", test[1], len(pixels[1])))
        if pixels[0].shape[1:] != pixels[1].shape[1:]:
            ours, theirs = ("×".join(map(str, some.shape[1:])) for some in pixels)
            raise DataError(f"test images are {theirs} (channels×height×width), but images are {ours}")
    true = None if true_labels is None else _names("true_labels", true_labels, len(pixels[0]))
    classes, position = _classes(given + ([] if true is None else [true]), class_names)
    is_test = None if test is None else np.repeat([False, True], [len(part) for part in given])
    known = given if true is None else [true, *given[1:]]
    given_ids, known_ids = (_ids([word for part in parts for word in part], position) for parts in (given, known))
    source = own_source(
        name,
        np.concatenate(pixels) if len(pixels) > 1 else pixels[0],
        given_ids,
        classes,
        seed=seed,
        clients=np.array([*owners, *[""] * (len(given_ids) - len(owners))]),
        is_test=is_test,
        flip=flip,
        crop_padding=crop_padding,
        test_labels=known_ids,
    )
    assert source.clients is not None, "they were given"
    names, parts = by_column(source.clients)
    order = np.concatenate(parts)
    own_given, own_true = source.train_labels[order], known_ids[source.train_rows][order]
    ends = np.cumsum([len(part) for part in parts])
    wrong = np.split(own_given != own_true, ends[:-1])
    return assemble(
        source,
        names,
        [len(part) for part in parts],
        source_index=order,
        given=own_given,
        true=None if true is None else own_true,
        noisy=[k for k, is_wrong in enumerate(wrong) if is_wrong.any()],
        test=np.arange(len(source.test_labels)),
    )


def as_images(what: str, images: Any, image_size: int | Size | None = None) -> Images:
    """Return a copy as (n, channels, h, w) uint8; see `FederatedData.from_arrays` for what is taken."""
    size = None
    if image_size is not None:
        sides = tuple(image_size) if isinstance(image_size, tuple | list) else (image_size, image_size)
        if len(sides) != 2 or not all(isinstance(s, int | np.integer) and s >= SMALLEST_SIDE for s in sides):
            raise DataError(
                f"image_size = {image_size!r}: give a side or (height, width), each {SMALLEST_SIDE} or more"
            )
        size = int(sides[0]), int(sides[1])
    try:
        array = as_array(what, images)
    except DataError:
        if not isinstance(images, list | tuple):
            raise
        array = np.empty(len(images), object)  # images whose sizes differ
        array[:] = [as_array(what, image) for image in images]
    if array.ndim == 0 or len(array) == 0:
        raise DataError(f"{what}: there are no rows")
    if array.dtype == object:  # a column, or a list, of images
        parts = [_channels_last(what, as_array(what, image)[None]) for image in array]
    else:
        whole = _channels_last(what, array)
        step = max(1, PIECE // max(1, whole[0].nbytes))
        parts = [whole[start : start + step] for start in range(0, len(whole), step)]
    # Only the channels must agree if all are brought to one size.
    forms = {part.shape[1:] if size is None else part.shape[3:] for part in parts}
    if len(forms) > 1:
        one, other = ("×".join(map(str, form)) for form in sorted(forms)[:2])
        raise DataError(
            f"{what} differ in form: some are {one}, some {other} (height×width×channels); set image_size to bring "
            "them to one size"
            if size is None
            else f"{what} differ in form: some have {one} channel(s), some {other}"
        )
    return gather((_pixels(what, part) for part in parts), len(array), size, what)


def images_of_form(images: Any, channels: int, size: Size) -> Images:
    """Return images as a model takes them, (n, channels, h, w) uint8; those of another size are brought to its own."""
    found = as_images("images", images, size)
    if found.shape[1] != channels:
        raise DataError(f"images have {found.shape[1]} channel(s), those that the model was trained on {channels}")
    return found


def _channels_last(what: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view (n, h, w, channels) of the forms that are taken."""
    shape = array.shape
    if array.ndim == 3:
        array = array[..., None]
    elif array.ndim == 4 and shape[3] not in (1, 3) and shape[1] in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[3] not in (1, 3) or 0 in shape:
        raise DataError(
            f"{what} have shape {shape}; expected (n, height, width), (n, height, width, 1 or 3) or "
            "(n, 1 or 3, height, width)"
        )
    return array


def _pixels(what: str, array: npt.NDArray[Any]) -> Images:
    """Return bytes, of bytes or of floats in [0, 1]."""
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind != "f":
        raise DataError(f"{what} must be uint8 (0 to 255) or floats in [0, 1], not {array.dtype}")
    if not np.isfinite(array).all():
        raise DataError(f"{what} hold NaN or infinite values; images must be floats in [0, 1] or uint8")
    if array.min() < 0 or array.max() > 1:
        raise DataError(
            f"{what} hold floats from {array.min():g} to {array.max():g}; they must be in [0, 1]. Give uint8 for "
            "values from 0 to 255, and leave normalisation to fedsir"
        )
    scaled: Images = np.rint(array * 255).astype(np.uint8)
    return scaled


def _names(what: str, values: Any, n: int) -> list[str]:
    """Return one name per image for labels or clients of any hashable kind."""
    entries, names = named_entries(what, values, n, "images")
    shown: dict[str, Any] = {}
    for entry, name in names.items():
        if name in shown:
            raise DataError(f"{what}: {shown[name]!r} and {entry!r} have the same name, {name!r}; rename one of them")
        shown[name] = entry
    return [names[entry] for entry in entries]


def _classes(parts: list[list[str]], class_names: Sequence[str] | None) -> tuple[tuple[str, ...], Mapping[str, int]]:
    """Return the classes, and label → class id: by name, or by position where not all labels are names."""
    found = {word for part in parts for word in part}
    names = (
        natural_order(found)
        if class_names is None
        else tuple(readable_name("class_names", name) for name in class_names)
    )
    by_name = {name: c for c, name in enumerate(names)}
    if len(by_name) < len(names):
        raise DataError("class_names names a class twice")
    by_position = {str(c): c for c in range(len(names))}
    for position in (by_name, by_position):
        if found <= position.keys():
            return names, position
    unknown = natural_order(found - by_name.keys() - by_position.keys()) or natural_order(found - by_name.keys())
    raise DataError(f"label {unknown[0]!r} is neither one of the {len(names)} class_names nor a position among them")


def _ids(words: list[str], position: Mapping[str, int]) -> Labels:
    return np.array([position[word] for word in words], np.int64)
