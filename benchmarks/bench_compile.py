"""Whether `torch.compile` would make the compact ResNet-18 faster. It takes minutes, so it runs only when named.

Ours is the model as it is; the reference is the same model compiled (inductor, default mode), after its compilation.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.bench_training_step import models, step
from benchmarks.measure import Outcome, interleave, seconds_of

RUNS_ONLY_WHEN_NAMED = True


def run() -> Iterator[Outcome]:
    torch.set_num_threads(1)
    _, eager = models()
    _, compiled = models()
    compiled.forward = torch.compile(compiled.forward)
    ours, theirs = step(eager, fused=True), step(compiled, fused=True)
    first = seconds_of(theirs)
    seconds, reference = interleave(ours, theirs, repeats=12)
    yield Outcome(
        name="compile",
        what="training step of the compact ResNet-18, batch 64, 1 thread: as it is, against compiled",
        ours=1000 * seconds,
        reference=1000 * reference,
        unit="ms",
        details={"seconds of the first compiled step": round(first)},
    )
