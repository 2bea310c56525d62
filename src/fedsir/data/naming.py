"""The order in which clients and classes are listed: as a person would, "site 2" before "site 10"."""

from __future__ import annotations

import re
import unicodedata
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
    """Raise a `DataError` if a name is no text that can be shown: control characters, line breaks, lone surrogates."""
    if any(unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in name):
        raise DataError(
            f"{where}: the name {name!r} is not readable text (UTF-8 without control characters); rename it"
        )
