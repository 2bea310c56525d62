"""What methods do on a client: the shared training loop, streaming of features, and FedSIR's tasks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from fedsir.engines.wire import decode, encode
from fedsir.methods import local_training
from fedsir.methods.base import Client
from fedsir.methods.fedavg import FedAvg
from fedsir.methods.fedsir import FedSIR, Repaired
from fedsir.methods.reply_check import Form, ReplyFault, read_reply, to_tree
from fedsir.methods.spectral_identification import Identified
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom
from fedsir.stages import train
from fedsir.stages.relabel import References
from tiny_network import Tiny

MakeClient = Callable[..., Client]


def fedsir(**settings: Any) -> FedSIR:
    return FedSIR(batch_size=8, **settings).resolved(100)


# ---------------------------------------------------------------- the training loop


@pytest.mark.parametrize(
    ("n", "sizes"), [(16, [8, 8]), (17, [8, 9]), (18, [8, 8, 2]), (9, [9]), (8, [8]), (3, [3]), (1, [1])]
)
def test_an_epoch_takes_each_sample_once_and_no_batch_of_one(n: int, sizes: list[int], make_client: MakeClient) -> None:
    client = make_client(n)
    batches = list(local_training.shuffled_batches(client, 8, KeyedRandom(1)))
    assert [len(batch.index) for batch in batches] == sizes
    index = torch.cat([batch.index for batch in batches])
    assert sorted(index.tolist()) == list(range(n))
    assert torch.equal(torch.cat([batch.labels for batch in batches]), client.data.labels[index])
    client.state["corrected_labels"] = torch.full((n,), 4)
    corrected = list(local_training.shuffled_batches(client, 8, KeyedRandom(2)))
    assert {int(label) for batch in corrected for label in batch.labels} == {4}
    assert n < 8 or torch.cat([batch.index for batch in corrected]).tolist() != index.tolist()  # another stream


def test_training_is_a_function_of_client_and_stream(make_client: MakeClient) -> None:
    def trained(client: Client) -> tuple[float, dict[str, torch.Tensor]]:
        module = client.module(weights_of(Tiny()))
        loss = local_training.train_with(fedsir(), client, module, local_training.cross_entropy)
        return loss, weights_of(module)

    (loss, once), (_, again), (_, other) = (trained(make_client(task=task)) for task in ("train", "train", "else"))
    assert all(torch.equal(once[name], again[name]) for name in once)
    assert any(not torch.equal(once[name], other[name]) for name in once)
    assert 0 < loss < 10


def test_the_reported_loss_is_the_mean_per_sample(make_client: MakeClient) -> None:
    seen: list[tuple[float, int]] = []

    def loss_of(module: nn.Module, batch: local_training.Batch) -> torch.Tensor:
        loss = local_training.cross_entropy(module, batch)
        seen.append((loss.item(), len(batch.index)))
        return loss

    client = make_client(18)
    loss = local_training.train_with(fedsir(lr=0.01, epochs=2), client, client.module(weights_of(Tiny())), loss_of)
    assert [n for _, n in seen] == [8, 8, 2, 8, 8, 2]
    assert loss == pytest.approx(sum(value * n for value, n in seen) / 36)


def test_a_client_of_one_sample_leaves_the_running_statistics(make_client: MakeClient) -> None:
    client = make_client(1)
    reply = FedAvg(lr=0.1).train(client, weights_of(Tiny()))
    before = weights_of(Tiny())
    assert reply.n_samples == 1
    assert torch.equal(reply.model["norm.running_mean"], before["norm.running_mean"])
    assert not torch.equal(reply.model["head.bias"], before["head.bias"])
    assert all(tensor.isfinite().all() for tensor in reply.model.values())


def test_batches_of_any_size_get_the_same_draws(make_client: MakeClient) -> None:
    client = make_client(10)
    whole = local_training.StepDraws(client, "mixup", 2, 3).take(20)
    assert whole.shape == (20, 3) and 0 <= whole.min() < whole.max() < 1
    pieces = local_training.StepDraws(client, "mixup", 2, 3)
    assert torch.equal(torch.cat([pieces.take(n) for n in (4, 6, 7, 3)]), whole)
    assert not torch.equal(local_training.StepDraws(client, "views", 2, 3).take(20), whole)


# ---------------------------------------------------------------- features


def test_features_stream_in_the_order_of_the_rows(make_client: MakeClient) -> None:
    client = make_client(300)
    module = client.module(weights_of(Tiny()))
    parts = list(local_training.stream_features(client, module))
    assert [len(rows) for _, rows in parts] == [128, 128, 44]
    assert torch.cat([rows for _, rows in parts]).tolist() == list(range(300))
    assert not module.training
    whole = torch.cat([features for features, _ in parts])
    plain = torch.cat([features for features, _ in local_training.stream_features(client, module)])
    augmented = torch.cat([f for f, _ in local_training.stream_features(client, module, is_augmented=True)])
    assert torch.equal(whole, plain)
    assert not torch.equal(whole, augmented)


def test_spectra_are_of_given_labels_whatever_was_corrected(make_client: MakeClient) -> None:
    client, relabelled = (
        make_client(40),
        make_client(40, state={"corrected_labels": torch.zeros(40, dtype=torch.int64)}),
    )
    module = client.module(weights_of(Tiny()))
    collected = local_training.class_features_of(relabelled, module)
    assert collected.counts.tolist() == np.bincount(client.data.labels, minlength=10).tolist()
    again = local_training.class_features_of(client, module)
    assert all(np.array_equal(collected.gram(label), again.gram(label)) for label in range(10))


def references(n_classes: int = 10, d: int = 6) -> References:
    columns, _ = torch.linalg.qr(torch.randn(n_classes, d, 2, generator=torch.Generator().manual_seed(1)))
    rows = columns.transpose(1, 2).numpy()
    return References(rows[:, 0], rows[:, 1:], np.ones(n_classes, np.int64), np.ones(n_classes, bool))


def test_relabelling_starts_from_the_given_labels_again(make_client: MakeClient) -> None:
    client = make_client(60)
    module = client.module(weights_of(Tiny()))
    once, is_undecided = local_training.relabel_client(client, module, references(), "agreement")
    client.state["corrected_labels"] = once
    twice, still_undecided = local_training.relabel_client(client, module, references(), "agreement")
    assert torch.equal(once, twice)
    assert torch.equal(is_undecided, still_undecided)
    assert (once != client.data.labels).any()
    assert torch.equal(once[is_undecided], client.data.labels[is_undecided])


# ---------------------------------------------------------------- FedSIR's tasks


@pytest.mark.parametrize("epochs", [0, 1])
def test_identify_sends_two_numbers_and_what_was_trained_if_anything(epochs: int, make_client: MakeClient) -> None:
    method = fedsir(identify={"epochs": epochs, "min_class_samples": 1})
    reply = method.identify(make_client(), weights_of(Tiny()))
    assert reply.mean is not None and 0 < reply.mean < 1
    assert (reply.n_usable_classes, reply.n_samples) == (10, 30)
    assert (reply.model is None) == (reply.loss is None) == (epochs == 0)


def test_pairs_of_classes_travel_only_where_they_are_compared(make_client: MakeClient) -> None:
    client, model = make_client(labels=[0, 1, 2] * 10), weights_of(Tiny())
    settings = {"epochs": 0, "min_class_samples": 1}
    plain, paired = (fedsir(identify=settings | {"split": how}).identify(client, model) for how in ("auto", "pairwise"))
    assert plain.pairs is None and "pairs" not in to_tree(plain)  # the bytes are those of before there were pairs
    assert replace(paired, pairs=None) == plain  # the rest of the reply does not depend on it
    form = Form.of(model, classes=10, features=6)
    read = read_reply(Identified, decode(encode(to_tree(paired))), form)
    assert isinstance(read, Identified) and read.pairs is not None
    assert np.isfinite(read.pairs.similarity).sum() == 3 and len(read.pairs.similarity) == 45
    with pytest.raises(ReplyFault, match=r"pairs.similarity is \(45,\), not pairs with pairs = 3"):
        read_reply(Identified, decode(encode(to_tree(paired))), Form.of(model, classes=3, features=6))


def test_one_class_has_no_numbers(make_client: MakeClient) -> None:
    reply = fedsir(identify={"min_class_samples": 1}).identify(make_client(labels=[4] * 30), weights_of(Tiny()))
    assert (reply.mean, reply.energy, reply.n_usable_classes) == (None, None, 1)


def test_spectra_are_sent_on_request_only(make_client: MakeClient) -> None:
    model = weights_of(Tiny())
    method = fedsir(relabel={"residual": "after_direction", "residual_rank": 3})
    plain = method.train_clean(make_client(), model, wants_spectra=False, spectra_model=None)
    assert plain.spectra is None
    asked = method.train_clean(make_client(), model, wants_spectra=True, spectra_model=model)
    own = method.train_clean(make_client(), model, wants_spectra=True, spectra_model=None)
    assert asked.spectra is not None and own.spectra is not None
    assert asked.spectra.residuals.shape == (10, 3, 6)
    assert not np.array_equal(asked.spectra.directions, own.spectra.directions)
    assert all(torch.equal(asked.model[name], plain.model[name]) for name in model)  # asking changes no training


def noisy(method: FedSIR, client: Client, *, kd_weight: float = 0.2, refs: References | None = None) -> Repaired:
    model = weights_of(Tiny())
    return method.train_noisy(
        client,
        model,
        kd_weight=kd_weight,
        references=None if refs is None else {k: torch.from_numpy(v) for k, v in vars(refs).items()},
        clean_reference=None if refs is None else model,
    )


@pytest.fixture
def distilled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that fills with the `is_distilled` of each step that distils."""
    masks: list[Any] = []
    original = train.la_kd_loss

    def noted(*args: Any, **kwargs: Any) -> torch.Tensor:
        masks.append(kwargs["is_distilled"])
        return original(*args, **kwargs)

    monkeypatch.setattr("fedsir.methods.fedsir.la_kd_loss", noted)
    return masks


@pytest.mark.parametrize(("preset", "has_references"), [("authors", False), ("paper", True)])
def test_before_the_first_relabelling_and_in_the_paper_all_samples_are_distilled(
    preset: str, has_references: bool, make_client: MakeClient, distilled: list[Any]
) -> None:
    reply = noisy(fedsir(preset=preset), make_client(), refs=references() if has_references else None)
    assert len(distilled) == 4
    assert all(mask is None for mask in distilled)
    assert (reply.n_corrected > 0) == has_references


def test_after_it_only_the_undecided_ones(make_client: MakeClient, distilled: list[Any]) -> None:
    client = make_client(60)
    reply = noisy(fedsir(), client, refs=references())
    undecided = client.state["is_undecided"]
    assert reply.n_undecided == int(undecided.sum()) == sum(int(mask.sum()) for mask in distilled)
    assert 0 < reply.n_undecided < 60
    assert reply.n_corrected == int((client.state["corrected_labels"] != client.data.labels).sum()) > 0
    distilled.clear()
    noisy(fedsir(), client)  # the next round has no references, but what was decided stays
    assert sum(int(mask.sum()) for mask in distilled) == reply.n_undecided


def test_without_distillation_there_is_no_teacher(
    make_client: MakeClient, distilled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Tiny] = []
    client = make_client()
    client.new_module = lambda: built.append(Tiny()) or built[-1]  # type: ignore[func-returns-value]
    noisy(fedsir(kd={"enabled": False}), client, kd_weight=0.0)
    assert (len(built), distilled) == (1, [])
    noisy(fedsir(), client)
    assert len(built) == 3


def test_logit_adjustment_by_hand_and_switched_off(make_client: MakeClient) -> None:
    client = make_client(30)
    counts = np.bincount(client.data.labels, minlength=10).clip(1)
    expected = np.log(counts / counts.sum())
    assert fedsir().adjustment(client).tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    assert fedsir(la={"strength": 2.0}).adjustment(client).tolist() == pytest.approx((2 * expected).tolist(), rel=1e-5)
    assert fedsir(la={"enabled": False}).adjustment(client).tolist() == [0.0] * 10
    client.state["corrected_labels"] = torch.full((30,), 2)
    assert fedsir().adjustment(client).tolist() == pytest.approx(expected.tolist(), rel=1e-5)
    by_corrected = [np.log(30 / 39) if c == 2 else np.log(1 / 39) for c in range(10)]
    assert fedsir(la={"prior": "corrected"}).adjustment(client).tolist() == pytest.approx(by_corrected, rel=1e-5)
