"""One FedAvg round of ten clients, data included, and what a second worker adds.

Reference: the usual loop, one client after the other: PIL images, transforms per sample, a DataLoader with workers,
the stock ResNet-18, default Adam, all cores' threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.bench_training_step import models
from benchmarks.federation import opened, random_federation
from benchmarks.measure import Outcome, interleave, seconds_of
from fedsir.data.federation import FederatedData
from fedsir.methods.base import ServerState
from fedsir.runs.provenance import cores

N_CLIENTS, PER_CLIENT = 10, 256


def run() -> Iterator[Outcome]:
    data = random_federation(N_CLIENTS, PER_CLIENT)
    with (
        opened(data, method="fedavg", model="resnet18", workers=cores()) as several,
        opened(data, method="fedavg", model="resnet18", workers=1) as one,
    ):
        several_round, one_round = one_of(several), one_of(one)
        usual = usual_round(data)
        seconds, reference = interleave(several_round, usual, repeats=3)
        what = f"one round, {N_CLIENTS} clients × {PER_CLIENT} images of 32×32, ResNet-18, {cores()} workers"
        images = N_CLIENTS * PER_CLIENT
        rates = {"images/s, ours": round(images / seconds), "images/s, usual loop": round(images / reference)}
        yield Outcome("round", what, seconds, reference, "s", target=5, details=rates)
        pairs = [(seconds_of(several_round), seconds_of(one_round)) for _ in range(8)]
        ours, reference = (min(times) for times in zip(*pairs, strict=True))
        yield Outcome("workers", f"the same round with {cores()} workers against 1", ours, reference, "s", target=1.7)


def one_of(opened_federation: tuple) -> Callable[[], object]:  # type: ignore[type-arg]
    """Return a function that runs one round."""
    method, fed, initial = opened_federation
    state = ServerState(model=initial)

    def one_round() -> None:
        fed.begin_round(1)
        method.round(1, state, fed)

    return one_round


class PillowImages(Dataset[tuple[Tensor, int]]):
    """Images as most code keeps them: a PIL image each, transformed one by one."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images = [Image.fromarray(image.transpose(1, 2, 0)) for image in images]
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        padded = Image.new("RGB", (40, 40))
        padded.paste(self.images[i], (4, 4))
        left, top = (int(v) for v in torch.randint(9, (2,)))
        image = padded.crop((left, top, left + 32, top + 32))
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous().float().div(255)
        return x.sub(0.5).div(0.25), int(self.labels[i])


def usual_round(data: FederatedData) -> Callable[[], object]:
    """Return a function that trains every client in turn, as one would write it first."""
    stock, _ = models()
    sets = [
        PillowImages(data.images[data.image_rows[data.rows(k)]], data.given_labels[data.rows(k)]) for k in data.clients
    ]

    def one_round() -> None:
        torch.set_num_threads(cores())
        sums: dict[str, Tensor] = {}
        for dataset in sets:
            model: nn.Module = type(stock)(10)
            model.load_state_dict(stock.state_dict())
            optimiser = torch.optim.Adam(model.parameters(), lr=3e-4, weight_decay=5e-4)
            for images, labels in DataLoader(dataset, batch_size=64, shuffle=True, num_workers=cores()):
                loss = F.cross_entropy(model(images), labels)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            for name, tensor in model.state_dict().items():
                sums[name] = sums.get(name, 0) + tensor / len(sets)
        torch.set_num_threads(1)

    return one_round
