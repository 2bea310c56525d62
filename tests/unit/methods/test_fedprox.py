"""FedProx: the proximal term, and what it does to a client."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedsir.methods.base import Client
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.fedprox import FedProx, proximal_term
from fedsir.models.weights import weights_of
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def fedprox(**settings: Any) -> FedProx:
    return FedProx(batch_size=8, lr=0.01, **settings)


MOVED, STAYED = [[2.0, 4.0], [3.0]], [[1.0, 2.0], [1.0]]  # from the latter by (1, 2) and by 2


@pytest.mark.parametrize(
    ("now", "norm", "expected", "pulls"),
    [
        (MOVED, "squared", 0.1 * (1 + 4 + 4), [0.2, 0.4, 0.4]),  # μ (w - w_g)
        (MOVED, "plain", 0.1 * (5**0.5 + 2), [0.1 / 5**0.5, 0.2 / 5**0.5, 0.1]),  # tensor by tensor
        (STAYED, "squared", 0.0, [0.0, 0.0, 0.0]),
        (STAYED, "plain", 0.0, [0.0, 0.0, 0.0]),
    ],
)
def test_the_term_and_its_pull(now: list[list[float]], norm: Any, expected: float, pulls: list[float]) -> None:
    tensors = [torch.tensor(values, requires_grad=True) for values in now]
    term = proximal_term(tensors, [torch.tensor(values) for values in STAYED], weight=0.2, norm=norm)
    assert isinstance(term, torch.Tensor) and term.item() == pytest.approx(expected)
    term.backward()
    assert [pull for tensor in tensors if tensor.grad is not None for pull in tensor.grad.tolist()] == pytest.approx(
        pulls
    )


def distance(model: dict[str, torch.Tensor]) -> float:
    start = weights_of(Tiny())
    names = [name for name, _ in Tiny().named_parameters()]
    return float(sum((model[name] - start[name]).square().sum() for name in names))


@pytest.mark.parametrize("norm", ["squared", "plain"])
def test_the_stronger_the_pull_the_nearer_a_client_stays(norm: str, make_client: MakeClient) -> None:
    methods = [fedprox(proximal_weight=weight, proximal_norm=norm, epochs=4) for weight in (0.0, 1.0, 100.0)]
    moves = [distance(method.train(make_client(), weights_of(Tiny())).model) for method in methods]
    assert moves[0] > moves[1] > moves[2] > 0


def test_without_the_term_it_is_fedavg(make_client: MakeClient) -> None:
    plain = FedAvg(batch_size=8, lr=0.01).train(make_client(), weights_of(Tiny()))
    freed = fedprox(proximal_weight=0.0).train(make_client(), weights_of(Tiny()))
    held = fedprox().train(make_client(), weights_of(Tiny()))
    assert all(torch.equal(plain.model[name], freed.model[name]) for name in plain.model)
    assert freed.loss == plain.loss
    assert any(not torch.equal(plain.model[name], held.model[name]) for name in plain.model)


def test_running_statistics_are_not_held_back(make_client: MakeClient) -> None:
    start = weights_of(Tiny())
    free = fedprox(proximal_weight=0.0, epochs=4).train(make_client(), start).model
    held = fedprox(proximal_weight=1e4, epochs=4).train(make_client(), start).model
    moves = [float((model["norm.running_mean"] - start["norm.running_mean"]).norm()) for model in (free, held)]
    assert moves[1] > 0.5 * moves[0] > 0
