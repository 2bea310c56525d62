"""An audit of features: time as a multiple of one pass features.T @ features, and the peak of memory.

100,000 × 512 features, 100 clients, 100 classes, 3 noisy clients. Both sides use one thread; the reference is the least
that anybody must do who wants second moments.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.measure import Outcome, peak, seconds_of

N, D, N_CLIENTS, N_CLASSES, REPEATS = (
    100_000,
    512,
    100,
    100,
    1,
)  # an audit takes minutes; the pass is timed before and after it
MOST_GIGABYTES = 2.0
CHILD = "from benchmarks.bench_audit import once; once()"


def run() -> Iterator[Outcome]:
    """Yield time and memory, each measured in a process of its own."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    ours, reference, gigabytes, noisy = done.stdout.split()
    details = {"named noisy": noisy, "peak, GB": float(gigabytes)}
    what = f"audit of {N:,} × {D} features, {N_CLIENTS} clients, {N_CLASSES} classes"
    yield Outcome(
        "audit", f"{what}, against features.T @ features", float(ours), float(reference), "s", details=details
    )
    limit = f"{what}: peak memory of the process"
    yield Outcome("audit_memory", limit, float(gigabytes), MOST_GIGABYTES, "GB", target=1.0, is_at_most=True)


def once() -> None:
    """Print seconds of an audit, seconds of one pass, gigabytes, and who was called noisy."""
    import fedsir

    random = np.random.default_rng(0)
    centres = random.normal(size=(N_CLASSES, D)).astype(np.float32) * 0.35
    labels = random.integers(N_CLASSES, size=N)
    features = centres[labels]
    features += random.standard_normal((N, D), dtype=np.float32)
    clients = np.arange(N) % N_CLIENTS
    is_wrong = (clients < 3) & (random.random(N) < 0.4)
    given = np.where(is_wrong, (labels + random.integers(1, N_CLASSES, N)) % N_CLASSES, labels)
    ours = reference = float("inf")
    found: list[fedsir.AuditResult] = []
    with threadpool_limits(1):
        for _ in range(REPEATS):
            reference = min(reference, seconds_of(lambda: features.T @ features))
            ours = min(ours, seconds_of(lambda: found.append(fedsir.audit(features, given, clients))))
            reference = min(reference, seconds_of(lambda: features.T @ features))
    noisy = found[0].clients["client"][found[0].clients["verdict"] == "noisy"]
    print(ours, reference, peak() / 1e9, ",".join(map(str, sorted(noisy.tolist()))))
