"""The order in which clients and classes are listed: as a person would, "site 2" before "site 10"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fedsir.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names sorted, with runs of digits compared as numbers."""

    def key(name: str) -> tuple[list[tuple[int, str]], str]:
        pieces = re.split(r"0*([0-9]+)", name)  # text, digits, text, digits, …
        # Digits meet digits and text meets text at each position. Of numbers, the longer one is the larger.
        return [(len(p) if i % 2 else -1, p) for i, p in enumerate(pieces)], name

    return tuple(sorted(set(names), key=key))


def check_name(where: str, name: str) -> None:
    """Raise a `DataError` if a name cannot be written as UTF-8, as a lone surrogate cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: the name {name!r} is not valid text (UTF-8); rename it") from None
