"""Errors a user can act on. The command line prints them as one line and leaves with code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FedsirError(Exception):
    """Something the user can put right; the message says what is wrong and what to do."""


class ConfigError(FedsirError, ValueError):
    """A setting is unknown, out of range, or contradicts another."""


class DataError(FedsirError, ValueError):
    """Data are missing, damaged, or not what they claim to be."""


class RunFolderError(FedsirError):
    """A run folder or checkpoint cannot be used as it is."""


class MethodError(FedsirError):
    """A method cannot go on, for instance because no clean client was found."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return `` did you mean 'x'?`` with a leading blank, or an empty string when nothing is close."""
    by_lower = {name.lower(): name for name in known}  # papers write FedSIR and CIFAR10
    close = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""
