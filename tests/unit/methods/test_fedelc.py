"""FedELC: how noisy clients learn their labels."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, weights
from fedsir.methods import local_training
from fedsir.methods.base import Client
from fedsir.methods.fedelc import FedELC, TrainedWithLabels
from fedsir.methods.fedelc_math import first_label_logits, label_correction_loss
from fedsir.models.weights import weights_of
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def fedelc(rounds: int = 100, **settings: Any) -> FedELC:
    return FedELC(batch_size=8, lr=0.01, **settings).resolved(rounds)


def wrong(n: int) -> list[int]:
    return [(3 * i + 1) % 10 for i in range(n)]


def as_in_the_paper(client: Client, label_logits: torch.Tensor, epochs: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """Train with a label step at the end of each epoch, by the gradient that autograd finds."""
    module, given = client.module(weights_of(Tiny())), client.data.labels
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=5e-4, fused=True)
    for epoch in range(epochs):
        gradient = torch.zeros_like(label_logits)
        for batch in local_training.shuffled_batches(client, 8, client.random.derive("epoch", epoch)):
            own = label_logits[batch.index].requires_grad_()
            optimiser.zero_grad()
            logits = module.train()(batch.images)
            label_correction_loss(logits, own, given[batch.index], compatibility=0.5, entropy=0.2).backward()
            optimiser.step()
            gradient[batch.index] = own.grad * len(batch.index)  # of a sum, not of a mean
        label_logits = label_logits - 1000 / 64 * gradient
    return module, label_logits


@pytest.mark.parametrize("epochs", [1, 3])
def test_model_and_labels_move_as_in_the_paper(epochs: int, make_client: MakeClient) -> None:
    client = make_client(22, labels=wrong(22))
    reply = fedelc(epochs=epochs).train_noisy(client, weights_of(Tiny()))
    reference = make_client(22, labels=wrong(22))
    first = first_label_logits(reference.data.labels, 10, 10.0)
    module, label_logits = as_in_the_paper(reference, first, epochs)
    sent, expected = reply.model, weights_of(module)
    assert all(torch.allclose(sent[name], expected[name], atol=1e-5) for name in expected)
    predicted = local_training.predictions(reference, module)
    merged = 10 * (label_logits.softmax(dim=1) + predicted) / 2
    assert torch.allclose(client.state["label_logits"], merged, atol=1e-4)
    assert torch.equal(client.state["corrected_labels"], merged.argmax(dim=1))
    assert reply.n_corrected == int((merged.argmax(dim=1) != reference.data.labels).sum())


def test_label_logits_go_on_where_they_were(make_client: MakeClient) -> None:
    kept = torch.linspace(-3, 3, 220).reshape(22, 10)
    client = make_client(22, labels=wrong(22), state={"label_logits": kept.clone()})
    fedelc().train_noisy(client, weights_of(Tiny()))
    reference = make_client(22, labels=wrong(22))
    module, label_logits = as_in_the_paper(reference, kept, 1)
    merged = 5 * (label_logits.softmax(dim=1) + local_training.predictions(reference, module))
    assert torch.allclose(client.state["label_logits"], merged, atol=1e-4)


def test_the_pull_is_towards_the_given_label_whatever_was_corrected(make_client: MakeClient) -> None:
    def state_after(state: dict[str, torch.Tensor]) -> torch.Tensor:
        client = make_client(22, labels=wrong(22), state=state)
        fedelc().train_noisy(client, weights_of(Tiny()))
        return client.state["label_logits"]

    assert torch.equal(state_after({}), state_after({"corrected_labels": torch.full((22,), 4)}))


def test_predictions_to_merge_with(make_client: MakeClient) -> None:
    replies, states = {}, {}
    for predict in ("plain", "training"):
        client = make_client(22, labels=wrong(22))
        replies[predict] = fedelc(labels={"predict": predict}).train_noisy(client, weights_of(Tiny())).model
        states[predict] = client.state["label_logits"]
    assert not torch.allclose(states["plain"], states["training"])
    # The pass in training mode moves running statistics, but what is sent was taken before.
    assert all(torch.equal(replies["plain"][name], replies["training"][name]) for name in replies["plain"])


def test_predictions_as_in_training(make_client: MakeClient) -> None:
    client = make_client(17)
    module = client.module(weights_of(Tiny()))
    before = module.norm.running_mean.clone()
    predicted = local_training.training_predictions(client, module, 8)
    batches = list(local_training.shuffled_batches(client, 8, client.random.derive("training-predictions")))
    assert [len(batch.index) for batch in batches] == [8, 9]
    fresh = client.module(weights_of(Tiny())).train()
    for batch in batches:
        assert torch.allclose(predicted[batch.index], fresh(batch.images).softmax(dim=1), atol=1e-6)
    assert not torch.equal(module.norm.running_mean, before)
    lonely = make_client(1)
    assert local_training.training_predictions(lonely, module, 8).sum().item() == pytest.approx(1.0)


def test_without_a_label_rate_only_the_merge_moves_labels(make_client: MakeClient) -> None:
    client = make_client(22, labels=wrong(22))
    fedelc(labels={"lr": 0}).train_noisy(client, weights_of(Tiny()))
    share = client.state["label_logits"] / 10  # ½ (y + p')
    y = first_label_logits(client.data.labels, 10, 10.0).softmax(dim=1)
    assert torch.allclose(share.sum(dim=1), torch.ones(22), atol=1e-5)
    assert (2 * share - y >= -1e-5).all()


def test_the_server_counts_what_was_corrected() -> None:
    fed = FakeFederation("cd", lambda task, k: TrainedWithLabels(weights(1.0), 1, 1.0, n_corrected=3))
    fedelc().ask_noisy(50, ["c", "d"], weights(3.0), fed)
    assert fed.asked["train_noisy"].clients == ["c", "d"]
    assert fed.asked["train_noisy"].payload == {"model": weights(3.0)}
    assert fed.values["relabelled"] == 6


@pytest.mark.parametrize(("rounds", "after"), [(100, 20), (20, 4), (2, 1)])
def test_the_warm_up_is_twice_as_long_as_fednoros(rounds: int, after: int) -> None:
    assert fedelc(rounds).config.identify.after == after
