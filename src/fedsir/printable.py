"""Text that others wrote, made fit for a terminal: names of clients, classes and files are data, not commands to it."""

from __future__ import annotations

import unicodedata

INVISIBLE = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))  # control, format (bidi overrides), lone surrogates, line breaks
JOINERS = "\u200c\u200d"  # zero-width, but scripts and emoji need them


def printable(text: str) -> str:
    r"""Return the text with every character that would steer a terminal as an escape such as ``\u001b``.

    Line breaks are escaped, too: one name stays on one line. The escapes are JSON's, so JSON stays the same JSON.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in INVISIBLE and c not in JOINERS else c for c in text)


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
