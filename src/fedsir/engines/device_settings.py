"""How a process computes on its device: torch's global switches, set before the first client runs."""

from __future__ import annotations

import torch


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


def forks_workers(device: str) -> bool:
    """Whether workers may be forked from a process that has loaded torch: Apple's libraries behind MPS do not allow it.

    CUDA does as long as that process has not started it, and loading this package does not.
    """
    return torch.device(device).type != "mps"
