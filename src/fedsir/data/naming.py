"""The order in which clients and classes are listed: as a person would, "site 2" before "site 10"."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct names sorted, with runs of digits compared as numbers."""

    def key(name: str) -> tuple[list[tuple[int, str]], str]:
        pieces = re.split(r"([0-9]+)", name)  # text, digits, text, digits, …
        # A piece is (number, "") or (-1, text): digits meet digits and text meets text at each position.
        return [(int(p), "") if i % 2 else (-1, p) for i, p in enumerate(pieces)], name

    return tuple(sorted(set(names), key=key))
