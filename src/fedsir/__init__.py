"""fedsir: federated learning when some clients' labels are wrong.

`identify` and `relabel` work on arrays of features, and `audit` says the same to a data owner, sample by sample;
`FederatedData` and `simulate` are a federation in memory, round by round; `run` and `load_run` are the same in a folder
that survives a kill; `write_report` makes a page of any of it. Importing this loads none of them yet.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedsir.auditing.audit import audit
    from fedsir.auditing.report import write_report
    from fedsir.auditing.result import AuditResult
    from fedsir.data.federation import FederatedData
    from fedsir.embeddings import Identification, Relabelled, identify, relabel
    from fedsir.errors import FedsirError
    from fedsir.runs.api import run, simulate
    from fedsir.runs.result import RunResult, load_run
    from fedsir.simulation.simulation import Simulation, Step

__version__ = "0.1.0"
__all__ = [
    "AuditResult",
    "FederatedData",
    "FedsirError",
    "Identification",
    "Relabelled",
    "RunResult",
    "Simulation",
    "Step",
    "audit",
    "identify",
    "load_run",
    "relabel",
    "run",
    "simulate",
    "write_report",
]

_HOME = {
    "AuditResult": "fedsir.auditing.result",
    "FederatedData": "fedsir.data.federation",
    "FedsirError": "fedsir.errors",
    "Identification": "fedsir.embeddings",
    "Relabelled": "fedsir.embeddings",
    "RunResult": "fedsir.runs.result",
    "Simulation": "fedsir.simulation.simulation",
    "Step": "fedsir.simulation.simulation",
    "audit": "fedsir.auditing.audit",
    "identify": "fedsir.embeddings",
    "load_run": "fedsir.runs.result",
    "relabel": "fedsir.embeddings",
    "run": "fedsir.runs.api",
    "simulate": "fedsir.runs.api",
    "write_report": "fedsir.auditing.report",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
