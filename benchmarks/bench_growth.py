"""How time and memory grow with clients, samples, classes and features: slopes on log-log axes (1 = in proportion)."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from benchmarks.federation import opened, random_federation
from benchmarks.measure import Outcome, seconds_of
from fedsir.methods.base import ServerState
from fedsir.methods.replies import Weights
from fedsir.stages.spectrum import class_features
from fedsir.stages.split import OffDiagonal, split_clients
from fedsir.stages.train import average_models


def run() -> Iterator[Outcome]:
    torch.set_num_threads(1)
    yield growth("split", "Stage I split against clients", (10, 100, 1_000, 10_000), time_split)
    yield growth("average", "averaging models that come one by one, against clients", (10, 100, 1_000), time_average)
    yield growth(
        "average_memory",
        "Python memory while averaging models one by one, against clients",
        (10, 100, 1_000),
        memory_average,
        "MB",
    )
    yield growth("samples", "class spectra against samples (512 features)", (2_000, 8_000, 32_000), time_samples)
    yield growth("classes", "class spectra against classes (8,000 samples)", (10, 30, 100), time_classes)
    yield growth("features", "class spectra against features (8,000 samples)", (128, 256, 512), time_features)
    yield growth("round", "a FedAvg round of 1,000 clients against participants", (10, 30, 100), time_round)


def growth(name: str, what: str, sizes: Sequence[int], measure: Callable[[int], float], unit: str = "s") -> Outcome:
    """Measure at each size; report the slope of a line through the points on log-log axes."""
    values = [measure(size) for size in sizes]
    slope = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
    points = {f"{size:,}": f"{value:.3g} {unit}" for size, value in zip(sizes, values, strict=True)}
    return Outcome(f"growth_{name}", what, slope, 1.0, "log-log slope", is_at_most=True, details=points)


def best(function: Callable[[], object], repeats: int = 3) -> float:
    return min(seconds_of(function) for _ in range(repeats))


def time_split(n_clients: int) -> float:
    random = np.random.default_rng(0)
    means = np.where(np.arange(n_clients) % 3 == 0, 0.5, 0.8) + 0.02 * random.standard_normal(n_clients)
    told = {str(k): OffDiagonal(float(m), float(m * m), 10) for k, m in enumerate(means)}
    return best(lambda: split_clients(told))


def models_one_by_one(n: int) -> Iterator[Weights]:
    generator = torch.Generator().manual_seed(0)
    return ({"w": torch.rand(40_000, generator=generator)} for _ in range(n))


def time_average(n_clients: int) -> float:
    return best(lambda: average_models(models_one_by_one(n_clients), [1.0] * n_clients))


def memory_average(n_clients: int) -> float:
    # NumPy reports its memory to Python, torch does not: the models are NumPy's.
    def models() -> Iterator[Weights]:
        return ({"w": torch.from_numpy(np.ones(40_000, dtype=np.float32))} for _ in range(n_clients))

    tracemalloc.start()
    average_models(models(), [1.0] * n_clients)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def time_spectra(n_samples: int, n_classes: int, n_features: int) -> float:
    features = np.random.default_rng(0).random((n_samples, n_features), dtype=np.float32)
    labels = np.arange(n_samples) % n_classes

    def spectra() -> None:
        collected = class_features(features, labels, n_classes)
        for label in range(n_classes):
            collected.spectrum(label)

    return best(spectra, repeats=2)


def time_samples(n: int) -> float:
    return time_spectra(n, 10, 512)


def time_classes(n: int) -> float:
    return time_spectra(8_000, n, 512)


def time_features(n: int) -> float:
    return time_spectra(8_000, 10, n)


def time_round(n_participants: int) -> float:
    n_clients = 1_000
    data = random_federation(n_clients, 20, size=8, channels=1)
    share = n_participants / n_clients
    with opened(data, method="fedavg", model="small_cnn", workers=1, participation=share) as (method, fed, initial):
        state = ServerState(model=initial)

        def one_round() -> None:
            fed.begin_round(1)
            method.round(1, state, fed)

        assert math.isclose(share * n_clients, n_participants)
        return best(one_round, repeats=2)
