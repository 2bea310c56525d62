"""Results as pandas tables, for those who have pandas; fedsir itself does without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedsir.errors import FedsirError


def to_frame(rows: Iterable[Mapping[str, Any]] | Mapping[str, Any], columns: Sequence[str]) -> Any:
    """Return rows, or columns by name, as a pandas DataFrame; an empty one still has its columns."""
    try:
        import pandas as pd
    except ImportError:
        raise FedsirError("to_frame needs pandas: install it with `pip install pandas`.") from None
    return pd.DataFrame(rows if isinstance(rows, Mapping) else list(rows), columns=list(columns))
