"""fedsir: federated learning when some clients' labels are wrong.

`fedsir.run` does from Python what `fedsir run` does on the command line; the stages are in `fedsir.stages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsir.runs.api import run

__version__ = "0.1.0"
__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name == "run":  # on first use: importing fedsir stays instant
        from fedsir.runs.api import run

        return run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
