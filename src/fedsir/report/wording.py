"""Numbers as people read them, in text, tables and charts alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

NARROW = "\u202f"  # no-break space before a unit
MISSING = "–"


def is_known(value: float | None) -> bool:
    """Whether there is a number: neither None nor NaN."""
    return value is not None and not math.isnan(value)


def count(n: float | None) -> str:
    """Return a whole number with thousands set apart."""
    return MISSING if n is None else f"{n:,.0f}"


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share in [0, 1] as a percentage; a small one that is not zero never looks like zero."""
    if share is None or math.isnan(share):
        return MISSING
    least = 10**-digits
    if 0 < abs(100 * share) < least / 2:
        return f"{'<' if share > 0 else '>−'}{NARROW}{least:.{digits}f}{NARROW}%"
    return f"{100 * share:.{digits}f}{NARROW}%".replace("-", "−")


def tick_percent(share: float) -> str:
    """Return a share at a tick of an axis: with a decimal only where it has one."""
    return percent(share, 0 if abs(100 * share - round(100 * share)) < 1e-6 else 1)


def points(difference: float | None) -> str:
    """Return a difference of two shares in percentage points, with its sign."""
    if difference is None or math.isnan(difference):
        return MISSING
    return f"{100 * difference:+.1f}".replace("-", "−")


def number(value: float | None, digits: int = 3) -> str:
    """Return a number with so many significant digits."""
    if value is None or math.isnan(value):
        return MISSING
    return f"{value:.{digits}g}".replace("-", "−")


def size(n_bytes: float | None) -> str:
    """Return a number of bytes."""
    if n_bytes is None:
        return MISSING
    power = min(int(math.log(max(n_bytes, 1), 1000)), 4)
    return f"{n_bytes / 1000**power:.{0 if power == 0 else 1}f}{NARROW}{('B', 'kB', 'MB', 'GB', 'TB')[power]}"


def duration(seconds: float | None) -> str:
    """Return a time."""
    if seconds is None:
        return MISSING
    if seconds < 90:
        return f"{seconds:.{1 if seconds < 10 else 0}f}{NARROW}s"
    minutes = round(seconds / 60)
    return f"{minutes}{NARROW}min" if minutes < 90 else f"{minutes // 60}{NARROW}h {minutes % 60:02d}{NARROW}min"


def moment(written: str) -> str:
    """Return a time in ISO's form for people, to the minute; other text stays as it is."""
    try:
        when = datetime.fromisoformat(written)
    except ValueError:
        return written
    if when.tzinfo is None:
        return written
    return f"{when.astimezone(UTC):%Y-%m-%d, %H:%M} UTC"


def plural(n: int, one: str, many: str | None = None) -> str:
    """Return `1 label` or `1,000 labels`."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def called(client: str) -> str:
    """Return what a chart calls a client: a number alone could be anything."""
    return f"client {client}" if client.isdecimal() else client


def about(n: float) -> str:
    """Return an estimated count, rounded to two digits where it is large: nobody knows the third."""
    if n < 100:
        return f"{round(n):,}"
    step = 10 ** (int(math.log10(n)) - 1)
    return f"{round(n / step) * step:,}"


def listed(names: Sequence[str], most: int = 6) -> str:
    """Return `a, b and c`; of many names the first few and how many more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
