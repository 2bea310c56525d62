"""FedNoRo: the ramp, and how noisy clients train."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, trained, weights
from fedsir.methods import local_training
from fedsir.methods.base import Client
from fedsir.methods.fednoro import FedNoRo
from fedsir.models.weights import weights_of
from fedsir.stages import train
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def fednoro(rounds: int = 100, **settings: Any) -> FedNoRo:
    return FedNoRo(batch_size=8, **settings).resolved(rounds)


def test_distillation_weight_over_the_rounds() -> None:
    weights_at = [fednoro().kd_weight(t) for t in (11, 21, 31, 41, 50, 100)]  # r = t - 1
    assert weights_at == pytest.approx([0.0054, 0.050, 0.244, 0.613, 0.8, 0.8], abs=6e-4)


@pytest.mark.parametrize(
    ("rounds", "settings", "begin", "end"),
    [
        (100, {}, 10, 49),
        (20, {}, 2, 9.8),
        (20, {"identify": {"after": 0.5}}, 10, 10 + 10 * 39 / 90),
        (100, {"identify": {"after": 300}}, 300, 300),
        (100, {"kd": {"ramp_begin": 20, "ramp_end": 100}}, 20, 100),
    ],
)
def test_the_ramp_begins_where_the_warm_up_ends(
    rounds: int, settings: dict[str, Any], begin: float, end: float
) -> None:
    kd = fednoro(rounds, **settings).config.kd
    assert (kd.ramp_begin, kd.ramp_end) == pytest.approx((begin, end))


def test_noisy_clients_are_sent_the_weight() -> None:
    fed = FakeFederation("cd", lambda task, k: trained(1.0, 1))
    fednoro().ask_noisy(50, ["d"], weights(3.0), fed)
    assert fed.asked["train_noisy"].clients == ["d"]
    assert fed.asked["train_noisy"].payload == {"model": weights(3.0), "kd_weight": pytest.approx(0.8)}
    assert fed.values["kd_weight"] == pytest.approx(0.8)


def models_of(client: Client, kd_weight: float, **settings: Any) -> dict[str, torch.Tensor]:
    return fednoro(**settings).train_noisy(client, weights_of(Tiny()), kd_weight).model


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.allclose(one[name], other[name], atol=1e-6) for name in one)


def test_without_weight_a_noisy_client_trains_like_a_clean_one(make_client: MakeClient) -> None:
    clean = fednoro().train_clean(make_client(), weights_of(Tiny()))
    assert same(models_of(make_client(), 0.0), clean.model)
    assert not same(models_of(make_client(), 0.5), clean.model)


def test_with_all_the_weight_labels_do_not_matter(make_client: MakeClient) -> None:
    labels = make_client().data.labels.tolist()
    shuffled = labels[15:] + labels[:15]  # the same counts, so the same prior
    assert shuffled != labels
    assert same(models_of(make_client(), 1.0), models_of(make_client(labels=shuffled), 1.0))
    assert not same(models_of(make_client(), 0.5), models_of(make_client(labels=shuffled), 0.5))


def test_the_teacher_is_the_global_model_in_evaluation_mode(make_client: MakeClient) -> None:
    client = make_client()
    teacher, module = client.module(weights_of(Tiny())), client.module(weights_of(Tiny()))
    adjustment = fednoro().adjustment(client)

    def loss_of(module: torch.nn.Module, batch: local_training.Batch) -> torch.Tensor:
        with torch.no_grad():
            told = teacher.eval()(batch.images)
        return train.la_kd_loss(module(batch.images), told, batch.labels, adjustment, weight=0.5, temperature=0.8)

    local_training.train_with(fednoro(epochs=2), client, module, loss_of)
    assert same(models_of(make_client(), 0.5, epochs=2), weights_of(module))
    assert not same(models_of(make_client(), 0.5, epochs=2, kd={"temperature": 2.0}), weights_of(module))
