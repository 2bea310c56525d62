"""One training step of ResNet-18 on 64 images of 32×32, and what it reaches of the machine's arithmetic.

Reference: the stock model in plain PyTorch, default memory format, default Adam. Both sides use all cores' threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.measure import Outcome, interleave, seconds_of
from fedsir.models.build import build_model, training_model
from fedsir.models.compact_resnet18 import MapConv
from fedsir.models.config import ModelConfig
from fedsir.models.position_major import live_pairs
from fedsir.randomness import KeyedRandom
from fedsir.runs.provenance import cores

BATCH, SIZE, N_CLASSES = 64, (32, 32), 10


def run() -> Iterator[Outcome]:
    for n_threads in sorted({1, cores()}):
        torch.set_num_threads(n_threads)
        stock, compact = models()
        ours, reference = step(compact, fused=True), step(stock, fused=None)
        seconds, reference_seconds = interleave(ours, reference, repeats=12)
        live = live_multiply_adds(compact)
        rate = 3 * 2 * live * BATCH / seconds / 1e9  # forward, and two products of that size backward
        peak = peak_gflops()
        yield Outcome(
            name=f"training_step_{n_threads}_threads",
            what=f"training step, ResNet-18, batch {BATCH}, 32×32, {n_threads} thread(s)",
            ours=1000 * seconds,
            reference=1000 * reference_seconds,
            unit="ms",
            target=3.5 if n_threads == 2 else None,
            details={
                "live multiply-adds per image (millions)": round(live / 1e6, 1),
                "GFLOP/s on live multiply-adds": round(rate, 1),
                "GFLOP/s of a 2048² matrix product": round(peak, 1),
                "share of the arithmetic limit": round(rate / peak, 2),
                "parameters, ours / stock": [count(compact), count(stock)],
            },
        )


def models() -> tuple[nn.Module, nn.Module]:
    """Return the stock model and its faster twin, with the same weights."""
    config = ModelConfig(name="resnet18")
    stock = build_model(config, n_classes=N_CLASSES, in_channels=3, random=KeyedRandom(0), image_size=SIZE)
    return stock, training_model(stock, "resnet18", SIZE)


def step(model: nn.Module, fused: bool | None) -> Callable[[], object]:
    """Return a function that makes one training step."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-4, weight_decay=5e-4, fused=fused)
    images = torch.randn(BATCH, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(BATCH) % N_CLASSES
    model.train()

    def one_step() -> None:
        loss = F.cross_entropy(model(images), labels)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()

    return one_step


def live_multiply_adds(model: nn.Module) -> int:
    """Return the multiply-adds of one image that meet data, convolutions and head (plain sums, not Winograd's)."""
    total = 16 * 16 * 64 * 3 * 49  # the stem, borders not subtracted
    for module in model.modules():
        if isinstance(module, MapConv):
            total += len(live_pairs(module.geometry)) * module.taps.shape[1] * module.taps.shape[2]
    return total + 512 * N_CLASSES


def peak_gflops() -> float:
    """Return the rate of a large matrix product, the best of several."""
    a = torch.randn(2048, 2048, generator=torch.Generator().manual_seed(0))
    return 2 * 2048**3 / min(seconds_of(lambda: a @ a) for _ in range(8)) / 1e9


def count(model: nn.Module) -> int:
    """Return how many numbers are trained."""
    return sum(parameter.numel() for parameter in model.parameters())
