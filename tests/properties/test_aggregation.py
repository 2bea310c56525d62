"""Invariants of averaging and of distance-aware weights."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsir.stages.train import (
    average_models,
    daagg_weights,
    la_kd_loss,
    la_loss,
    logit_adjustment,
    model_distance,
    nearest_clean_distances,
)

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
SHARES = st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=9)
KIND = st.sampled_from(["normalised", "raw"])
SMALL = st.floats(-10, 10, width=32)


@given(values=st.lists(FLOATS, min_size=1, max_size=20), shares=SHARES, dtype=st.sampled_from(["float32", "bfloat16"]))
def test_the_average_of_equal_models_is_that_model_bit_for_bit(
    values: list[float], shares: list[float], dtype: str
) -> None:
    model = {"w": torch.tensor(values, dtype=getattr(torch, dtype)), "n": torch.tensor(4)}
    averaged = average_models([model] * len(shares), shares)
    assert averaged["w"].dtype == model["w"].dtype
    assert torch.equal(averaged["w"], model["w"])
    assert torch.equal(averaged["n"], model["n"])


@given(data=st.data(), n_models=st.integers(1, 6))
def test_an_average_lies_between_its_parts_and_scales_with_the_shares(data: st.DataObject, n_models: int) -> None:
    values = data.draw(st.lists(SMALL, min_size=n_models, max_size=n_models))
    shares = data.draw(st.lists(st.floats(0.01, 100), min_size=n_models, max_size=n_models))
    models = [{"w": torch.tensor([value])} for value in values]
    mean = average_models(models, shares)["w"].item()
    assert min(values) - 1e-5 <= mean <= max(values) + 1e-5
    assert mean == pytest.approx(average_models(models, [8 * share for share in shares])["w"].item(), abs=1e-6)
    assert mean == pytest.approx(math.fsum(v * s for v, s in zip(values, shares, strict=True)) / sum(shares), abs=1e-5)


@given(
    values=st.lists(SMALL, min_size=1, max_size=7),
    sizes=st.lists(st.integers(1, 10_000), min_size=7, max_size=7),
    is_clean=st.lists(st.booleans(), min_size=7, max_size=7),
    kind=KIND,
)
def test_distance_aware_shares_sum_to_one_and_never_favour_the_noisy(
    values: list[float], sizes: list[int], is_clean: list[bool], kind: Any
) -> None:
    models = {f"k{i}": {"w": torch.tensor([value])} for i, value in enumerate(values)}
    n_samples = {client: sizes[i] for i, client in enumerate(models)}
    clean = {client for i, client in enumerate(models) if is_clean[i]}
    shares = daagg_weights(models, n_samples, clean, kind)
    assert list(shares) == list(models)
    assert math.fsum(shares.values()) == pytest.approx(1)
    factors = {client: shares[client] / n_samples[client] for client in models}
    for client in models.keys() - clean:
        if clean:
            reference = factors[next(iter(clean))]
            assert factors[client] <= reference * (1 + 1e-9)
            if kind == "normalised":
                assert factors[client] >= reference * math.exp(-1) * (1 - 1e-9)
        else:
            assert shares[client] == pytest.approx(n_samples[client] / sum(n_samples.values()))


@given(a=st.lists(SMALL, min_size=4, max_size=4), b=st.lists(SMALL, min_size=4, max_size=4), kind=KIND)
def test_a_distance_is_a_distance(a: list[float], b: list[float], kind: Any) -> None:
    one = {"u": torch.tensor(a[:3]), "v": torch.tensor(a[3:])}
    other = {"u": torch.tensor(b[:3]), "v": torch.tensor(b[3:])}
    assert model_distance(one, other, kind) == model_distance(other, one, kind) >= 0
    assert model_distance(one, one, kind) == 0
    assert model_distance(one, other, "raw") <= model_distance(one, other, "normalised") + 1e-9  # ‖·‖₂ ≤ Σ‖·‖₂


@given(seed=st.integers(0, 2**31), weight=st.floats(0, 1), n_classes=st.integers(2, 6))
def test_la_kd_is_linear_in_its_weight_and_blind_to_a_constant_shift(seed: int, weight: float, n_classes: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits, teacher = torch.randn(2, 5, n_classes, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, n_classes, (5,), generator=generator)
    adjustment = logit_adjustment(torch.rand(n_classes, generator=generator, dtype=torch.float64))

    def loss(w: float, shift: float = 0.0) -> float:
        return la_kd_loss(logits + shift, teacher - shift, labels, adjustment, weight=w, temperature=0.8).item()

    assert loss(weight) == pytest.approx((1 - weight) * loss(0.0) + weight * loss(1.0), abs=1e-9)
    assert loss(weight, shift=3.0) == pytest.approx(loss(weight), abs=1e-9)
    assert loss(0.0) == pytest.approx(la_loss(logits, labels, adjustment).item(), abs=1e-9)
    assert loss(1.0) >= -1e-9  # a Kullback-Leibler divergence


@given(seed=st.integers(0, 2**31), n_clean=st.integers(1, 5), at_once=st.integers(1, 6), kind=KIND)
def test_distances_by_blocks_are_those_of_each_pair(seed: int, n_clean: int, at_once: int, kind: Any) -> None:
    generator = torch.Generator().manual_seed(seed)

    def model() -> dict[str, torch.Tensor]:
        shapes: dict[str, tuple[int, ...]] = {"w": (3, 2), "b": (3,), "s": ()}
        drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
        return {**drawn, "n": torch.tensor(7)}  # BatchNorm counts batches in whole numbers: no part of a distance

    models = {f"{group}{i}": model() for group, n in (("clean", n_clean), ("noisy", 3)) for i in range(n)}
    clean = [name for name in models if name.startswith("clean")]
    nearest = nearest_clean_distances(models, clean, kind, at_once)
    for client in ("noisy0", "noisy1", "noisy2"):
        one_by_one = min(model_distance(models[client], models[other], kind) for other in clean)
        assert abs(nearest[client] - one_by_one) < 1e-12
    assert nearest == {c: pytest.approx(d, abs=1e-12) for c, d in nearest_clean_distances(models, clean, kind).items()}
