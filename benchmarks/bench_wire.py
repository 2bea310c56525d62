"""Bytes of one model on the wire: ResNet-18 for 32×32 images with live taps only, against the whole network."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.bench_training_step import models
from benchmarks.measure import Outcome
from fedsir.engines.wire import encode
from fedsir.models.weights import weights_of


def run() -> Iterator[Outcome]:
    stock, compact = models()
    yield Outcome(
        name="wire",
        what="bytes of one ResNet-18 model on the wire, live taps against all taps",
        ours=len(encode({"model": weights_of(compact)})),
        reference=len(encode({"model": weights_of(stock)})),
        unit="bytes",
        target=0.45,
        is_at_most=True,
    )
