"""How the benchmarks measure: ours and the reference interleaved in one run, the best of several each.

The machine may be shared. Interleaving lets both sides meet the same neighbours, and the best time is the one least
disturbed; what is reported is their ratio.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedsir.runs.provenance import cores, processor, versions

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Outcome:
    """One benchmark's result; `target` is what the ratio should reach (at least, or at most where `is_at_most`)."""

    name: str
    what: str
    ours: float
    reference: float
    unit: str
    target: float | None = None
    is_at_most: bool = False
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float:
        """How many times better ours is; for sizes, ours as a share of the reference."""
        return self.ours / self.reference if self.is_at_most else self.reference / self.ours

    @property
    def is_met(self) -> bool | None:
        if self.target is None:
            return None
        return self.ratio <= self.target if self.is_at_most else self.ratio >= self.target


def interleave(ours: Callable[[], object], reference: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Return the best seconds of each side, run in turns after one warm-up."""
    ours(), reference()
    best_ours = best_reference = float("inf")
    for _ in range(repeats):
        best_ours = min(best_ours, seconds_of(ours))
        best_reference = min(best_reference, seconds_of(reference))
    return best_ours, best_reference


def seconds_of(function: Callable[[], object]) -> float:
    """Return how long one call takes."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def peak() -> int:
    """Return the most bytes this process has had in memory.

    On Linux `getrusage` counts what the parent had when it started this process, so the kernel's own page is read.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def save(outcome: Outcome) -> Path:
    """Write an outcome with hardware and versions in its header; one file a benchmark."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{outcome.name}.json"
    header = {
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor(),
        "cores": cores(),
        "versions": versions(),
    }
    body = asdict(outcome) | {"ratio": outcome.ratio, "is_met": outcome.is_met}
    path.write_text(json.dumps(header | body, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def describe(outcome: Outcome) -> str:
    """Return the line a person reads."""
    goal = ""
    if outcome.target is not None:
        word = "at most" if outcome.is_at_most else "at least"
        goal = f" (target {word} {outcome.target:g}: {'met' if outcome.is_met else 'MISSED'})"
    return (
        f"{outcome.name}: {outcome.what}\n"
        f"  ours {outcome.ours:.4g} {outcome.unit}, reference {outcome.reference:.4g} {outcome.unit}, "
        f"ratio {outcome.ratio:.3g}{goal}"
    )
