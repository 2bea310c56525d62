"""RoFL: schedules, what server and client do, and the published code's missing gradient."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, weights
from fedsir.methods import rofl_math as maths
from fedsir.methods.base import Client
from fedsir.methods.rofl import RoFL, RoFLState, TrainedWithCentroids
from fedsir.models.weights import weights_of
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def rofl(rounds: int = 100, **settings: Any) -> RoFL:
    return RoFL(batch_size=8, **settings).resolved(rounds)


# ---------------------------------------------------------------- schedules


def test_schedules_of_a_hundred_rounds() -> None:
    method = rofl()
    assert [method.forget_rate(t) for t in (1, 6, 11, 100)] == pytest.approx([0.0, 0.1, 0.2, 0.2])
    assert [method.central_weight(t) for t in (1, 6, 11, 100)] == pytest.approx([0.0, 0.5, 1.0, 1.0])
    assert [t for t in range(1, 101) if method.has_pseudo_labels(t)] == list(range(11, 101))


def test_schedules_scale_and_stated_ones_stay() -> None:
    assert next(t for t in range(1, 21) if rofl(20).has_pseudo_labels(t)) == 3
    stated = rofl(20, forget_ramp=0, pseudo_label_from=7)
    assert (stated.forget_rate(1), stated.has_pseudo_labels(7), stated.has_pseudo_labels(8)) == (0.2, False, True)
    assert rofl(20, pseudo_label_from=0).central_weight(1) == 1.0  # no division by zero


# ---------------------------------------------------------------- server

TOLD = {
    "a": TrainedWithCentroids(weights(0.0), 1, 1.0, torch.tensor([[2.0, 0.0]]), n_kept=4, n_confident=1),
    "b": TrainedWithCentroids(weights(8.0), 3, 1.0, torch.tensor([[6.0, 4.0]]), n_kept=4, n_confident=3),
}


@pytest.mark.parametrize(("average", "model"), [("clients", 4.0), ("samples", 6.0)])
def test_models_are_averaged_alike_or_by_samples(average: str, model: float) -> None:
    fed = FakeFederation("ab", lambda task, k: TOLD[k])
    state = rofl(average=average).round(1, RoFLState(model=weights(5.0)), fed)
    assert state.model["w"].item() == model
    assert state.centroids.tolist() == [[5.0, 3.0]]  # (1 · (2, 0) + 3 · (6, 4)) / 4, whatever the models do
    assert fed.asked["train"].payload["centroids"] is None
    assert fed.values["confident_share"] == 0.5


def test_later_rounds_weigh_by_cosine() -> None:
    before = torch.tensor([[0.0, 1.0]])  # cosines 0 and 4 / √52: all weight to b
    state = rofl().round(2, RoFLState(model=weights(5.0), centroids=before), FakeFederation("ab", lambda _, k: TOLD[k]))
    assert state.centroids[0].tolist() == pytest.approx([6.0, 4.0], abs=1e-5)


def test_a_round_without_answers_changes_nothing() -> None:
    before = RoFLState(model=weights(5.0), centroids=torch.ones(1, 2))
    fed = FakeFederation("ab", lambda task, k: TOLD[k], absent=("a", "b"))
    assert rofl().round(2, before, fed) is before
    assert fed.values["loss"] is None and fed.values["confident_share"] is None


# ---------------------------------------------------------------- client


def train(client: Client, method: RoFL, **over: Any) -> TrainedWithCentroids:
    payload: dict[str, Any] = {
        "centroids": None,
        "forget_rate": 0.25,
        "central_weight": 1.0,
        "has_pseudo_labels": True,
    } | over
    return method.train(client, model=weights_of(Tiny()), **payload)


def test_small_loss_samples_are_what_is_trained_on(make_client: MakeClient) -> None:
    client = make_client(18)
    reply = train(client, rofl())
    assert client.state == {}  # given labels stay as they are
    assert reply.n_kept == 6 + 6 + 1  # of batches of 8, 8 and 2
    assert 0 <= reply.n_confident <= 13
    assert reply.centroids.shape == (10, 6)


def test_a_class_that_the_client_lacks_keeps_the_servers_centroid(make_client: MakeClient) -> None:
    client = make_client(5)
    held = set(client.data.labels.tolist())
    sent = torch.rand(10, 6, generator=torch.Generator().manual_seed(0)) + 0.1
    got = train(client, rofl(), centroids=sent, forget_rate=0.0).centroids
    for c in range(10):
        assert torch.equal(got[c], sent[c]) == (c not in held)


def test_unknown_classes_begin_with_own_means(make_client: MakeClient) -> None:
    client = make_client(20)
    module = client.module(weights_of(Tiny()))
    sent = torch.ones(10, 6)
    mine = int(client.data.labels[0])
    sent[mine] = 0
    pseudo, own = rofl().pseudo_labels_and_centroids(client, module, sent, has_pseudo_labels=False)
    _, naive = rofl().pseudo_labels_and_centroids(client, module, None, has_pseudo_labels=False)
    assert pseudo is None
    assert torch.equal(own[mine], naive[mine]) and maths.is_known(own)[mine]
    assert torch.equal(own[(mine + 1) % 10], sent[(mine + 1) % 10])


def test_a_look_that_nobody_needs_is_not_taken(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("a pass over the data")

    monkeypatch.setattr("fedsir.methods.rofl.stream_features", fail)
    client = make_client(20)
    module = client.module(weights_of(Tiny()))
    known = torch.ones(10, 6)
    assert rofl().pseudo_labels_and_centroids(client, module, known, has_pseudo_labels=False) == (None, known)
    with pytest.raises(AssertionError, match="a pass"):
        rofl().pseudo_labels_and_centroids(client, module, known, has_pseudo_labels=True)


def test_pseudo_labels_are_those_of_the_global_model(make_client: MakeClient) -> None:
    client = make_client(20)
    module = client.module(weights_of(Tiny()))
    with torch.no_grad():
        module.head.bias.copy_(torch.eye(10)[7] * 100)  # type: ignore[union-attr]
    pseudo, _ = rofl().pseudo_labels_and_centroids(client, module, None, has_pseudo_labels=True)
    assert pseudo is not None and pseudo.tolist() == [7] * 20


def test_the_central_loss_is_inert_as_published_and_pulls_as_in_the_paper(make_client: MakeClient) -> None:
    for has_gradient in (False, True):
        method = rofl(central_gradient=has_gradient)
        pulled, free = (train(make_client(), method, central_weight=w).model["body.weight"] for w in (1.0, 0.0))
        assert torch.equal(pulled, free) != has_gradient
