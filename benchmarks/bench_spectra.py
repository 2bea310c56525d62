"""Class spectra: with the pass over the images that features come from, and alone.

Reference: the usual way. PIL images transformed one by one in a DataLoader with workers, the stock ResNet-18 on all
cores' threads, features appended to a list per class sample by sample, then a thin float32 SVD of each class's matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks.bench_round import PillowImages
from benchmarks.bench_training_step import models
from benchmarks.federation import opened, random_federation
from benchmarks.measure import Outcome, interleave, seconds_of
from fedsir.data.federation import FederatedData
from fedsir.data.preprocessing import MOST_AT_ONCE
from fedsir.methods.fedsir import FedSIR
from fedsir.methods.local_training import HELD_BATCHES
from fedsir.runs.provenance import cores
from fedsir.stages.spectrum import Array, ClassFeatures

N, D, N_CLIENTS = 50_000, 512, 10


def run() -> Iterator[Outcome]:
    yield with_extraction()
    for n_classes in (10, 100):
        yield alone(n_classes, is_leading_enough=True)
        yield alone(n_classes, is_leading_enough=False)


def with_extraction() -> Outcome:
    """Stage I without training: every client's features and class directions, as a run asks for them."""
    data = random_federation(N_CLIENTS, N // N_CLIENTS)
    usual = usual_spectra(data)
    settings = {"identify": {"epochs": 0, "features": "plain"}}
    with opened(data, method="fedsir", model="resnet18", workers=cores(), settings=settings) as (_, fed, initial):

        def ours() -> None:
            fed.begin_round(0)
            answers = fed.ask(FedSIR.identify, fed.clients, model=initial)
            assert len(answers) == N_CLIENTS, fed.failures

        fed.begin_round(0)
        fed.ask(FedSIR.identify, fed.clients[: cores()], model=initial)  # workers have started and are warm
        pairs = [(seconds_of(ours), seconds_of(usual)) for _ in range(2)]
    seconds, reference = (min(times) for times in zip(*pairs, strict=True))
    what = f"features of {N:,} images of 32×32 (ResNet-18) and spectra of 10 classes, {N_CLIENTS} clients"
    rates = {"images/s, ours": round(N / seconds), "images/s, usual way": round(N / reference)}
    return Outcome("spectra", what, seconds, reference, "s", target=5, details=rates)


def alone(n_classes: int, *, is_leading_enough: bool) -> Outcome:
    """The spectra of one client's share of N features; both sides on one thread, as a worker has.

    Stage I needs only leading directions, Stage II all singular values and a few vectors more.
    """
    n = N // N_CLIENTS
    random = np.random.default_rng(0)
    features = random.random((n, D), dtype=np.float32)
    labels = random.integers(n_classes, size=n)
    torch.set_num_threads(1)

    def ours() -> list[Array]:
        collected = ClassFeatures(n_classes, D)
        for start in range(0, n, MOST_AT_ONCE * HELD_BATCHES):  # as features stream by on a client
            rows = slice(start, start + MOST_AT_ONCE * HELD_BATCHES)
            collected.include(features[rows], labels[rows])
        if is_leading_enough:
            return [collected.leading(label)[1] for label in range(n_classes)]
        return [collected.spectrum(label).right_vectors for label in range(n_classes)]

    def reference() -> list[Tensor]:
        by_class: list[list[Tensor]] = [[] for _ in range(n_classes)]
        for row, label in zip(torch.from_numpy(features), labels, strict=True):
            by_class[int(label)].append(row)
        return [torch.linalg.svd(torch.stack(rows), full_matrices=False)[2] for rows in by_class]

    seconds, reference_seconds = interleave(ours, reference, repeats=5)
    kind = "directions" if is_leading_enough else "spectra"
    what = f"class {kind} alone: {n:,} × {D} features of {n_classes} classes, one thread"
    return Outcome(f"{kind}_{n_classes}_classes", what, 1000 * seconds, 1000 * reference_seconds, "ms")


def usual_spectra(data: FederatedData) -> Callable[[], object]:
    """Return a function that does the same client by client, as one would write it first."""
    stock: nn.Module = models()[0].eval()
    sets = [
        PillowImages(data.images[data.image_rows[data.rows(k)]], data.given_labels[data.rows(k)]) for k in data.clients
    ]

    def all_clients() -> None:
        torch.set_num_threads(cores())
        for dataset in sets:
            by_class: list[list[Tensor]] = [[] for _ in range(data.n_classes)]
            with torch.no_grad():
                for images, labels in DataLoader(dataset, batch_size=64, num_workers=cores()):
                    for row, label in zip(stock.features(images), labels, strict=True):  # type: ignore[operator]
                        by_class[int(label)].append(row)
            for rows in by_class:
                torch.linalg.svd(torch.stack(rows), full_matrices=False)
        torch.set_num_threads(1)

    return all_clients
