"""How a process computes on its device: torch's global switches, set before the first client runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedsir.randomness import KeyedRandom


def prepare(device: str) -> None:
    """Choose exactness before speed where torch leaves it open; starts no device.

    One thread: sums must not depend on how many cores a machine has. On CUDA, convolutions in full float32 (torch's own
    default rounds their inputs to ten bits, TF32) by an algorithm that neither depends on a race between threads nor
    on which one happened to be fastest in a trial. The CPU alone promises the same bits twice: some of CUDA's other
    operations (`index_add_`, adaptive max pooling backward) add up in whatever order threads arrive.
    """
    torch.set_num_threads(1)
    if torch.device(device).type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True


@contextmanager
def prepared(device: str) -> Iterator[None]:
    """Prepare this process inside the block, and leave torch as the caller had it: threads, switches, defaults."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    cudnn = torch.backends.cudnn
    switches = cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic
    torch.set_default_dtype(torch.float32)
    prepare(device)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = switches


@contextmanager
def drawing_from(random: KeyedRandom, device: str) -> Iterator[None]:
    """Let torch's global generator, which dropout draws from, start at this stream; the caller's is as it was after."""
    seed = torch.default_generator.manual_seed if device == "cpu" else torch.manual_seed
    with torch.random.fork_rng(devices=[]):
        seed(random.integer())
        yield
