"""Run the benchmarks: all of them, or those named on the command line."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

from benchmarks.measure import describe, save


def names() -> list[str]:
    """Return every benchmark's name: the modules bench_NAME.py of this folder."""
    return sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))


def module(name: str) -> ModuleType:
    """Return a benchmark's module."""
    return importlib.import_module(f"benchmarks.bench_{name}")


def main() -> None:
    chosen = sys.argv[1:] or [name for name in names() if not hasattr(module(name), "RUNS_ONLY_WHEN_NAMED")]
    unknown = [name for name in chosen if name not in names()]
    if unknown:
        sys.exit(f"no benchmark {unknown[0]!r}; there are: {', '.join(names())}")
    for name in chosen:
        for outcome in module(name).run():
            print(describe(outcome), flush=True)
            for key, value in outcome.details.items():
                print(f"  {key}: {value}")
            print(f"  {save(outcome).relative_to(Path.cwd())}", flush=True)


if __name__ == "__main__":
    main()
