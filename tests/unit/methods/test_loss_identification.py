"""What FedNoRo and FedELC share: warm-up, the split by losses with late comers, and rounds in two groups."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fake_federation import FakeFederation, trained, weights
from fedsir.errors import ConfigError
from fedsir.methods import local_training
from fedsir.methods.base import DROPPED_OUT, Client
from fedsir.methods.fednoro import FedNoRo
from fedsir.methods.loss_identification import Losses, LossIdentificationState
from fedsir.models.weights import weights_of
from fedsir.stages import train
from tiny_network import Tiny

NAN = math.nan
MakeClient = Callable[..., Client]


def fednoro(rounds: int = 100, **settings: Any) -> FedNoRo:
    return FedNoRo(batch_size=8, **settings).resolved(rounds)


LOSSES = {"a": [0.50, 0.60], "b": [0.55, 0.52], "c": [2.00, 2.10], "d": [2.05, 1.90], "e": [0.58, NAN]}
MODELS = {
    "a": trained(0.0, 1),
    "b": trained(4.0, 3),
    "c": trained(6.0, 4, 3.0),
    "d": trained(8.0, 4),
    "e": trained(0.0, 1),
}


def answers(task: str, client: str) -> Any:
    return Losses(torch.tensor(LOSSES[client])) if task == "measure_losses" else MODELS[client]


def after_warm_up() -> LossIdentificationState:
    return LossIdentificationState(weights(50.0))


# ---------------------------------------------------------------- on the server


def test_the_warm_up_averages_everybody_by_samples() -> None:
    fed = FakeFederation("abcd", answers)
    state = fednoro().round(10, LossIdentificationState(weights(50.0)), fed)
    assert list(fed.asked) == ["train_clean"]
    assert fed.asked["train_clean"].clients == ["a", "b", "c", "d"]
    assert fed.asked["train_clean"].payload == {"model": weights(50.0)}
    assert state.model["w"].item() == pytest.approx((12 + 24 + 32) / 12)
    assert state.split is None


def test_then_clients_are_told_apart_by_the_model_of_the_warm_up() -> None:
    fed = FakeFederation("abcd", answers)
    state = fednoro().round(11, after_warm_up(), fed)
    assert list(fed.asked) == ["measure_losses", "train_clean", "train_noisy"]
    assert fed.asked["measure_losses"].payload == {"model": weights(50.0)}
    assert (state.split.clean, state.split.noisy) == (("a", "b"), ("c", "d"))
    assert (fed.values["assessed"], fed.values["agreeing_fits"]) == (4, 9)
    assert fed.asked["train_clean"].clients == ["a", "b"]
    assert fed.asked["train_noisy"].clients == ["c", "d"]
    assert state.yardstick == {}  # everybody was assessed: no need to keep it


def test_the_split_is_made_once() -> None:
    state = fednoro().round(11, after_warm_up(), FakeFederation("abcd", answers))
    fed = FakeFederation("abcd", answers)
    again = fednoro().round(12, state, fed)
    assert "measure_losses" not in fed.asked
    assert again.split is state.split
    assert "assessed" not in fed.values


def test_models_are_averaged_by_distance() -> None:
    fed = FakeFederation("abcd", answers)
    state = fednoro().round(11, after_warm_up(), fed)
    # Distances to the nearest clean model are 2 and 4; over the largest, ½ and 1.
    raw = [1.0, 3.0, 4 * math.exp(-0.5), 4 * math.exp(-1)]
    shares = [value / sum(raw) for value in raw]
    assert list(fed.values["shares"].values()) == pytest.approx(shares)
    assert state.model["w"].item() == pytest.approx(4 * shares[1] + 6 * shares[2] + 8 * shares[3], rel=1e-6)
    assert (fed.values["loss_clean"], fed.values["loss_noisy"]) == pytest.approx((1.0, 2.0))
    fednoro(daagg={"enabled": False}).round(11, after_warm_up(), fed)
    assert fed.values["shares"] == pytest.approx({"a": 1 / 12, "b": 3 / 12, "c": 4 / 12, "d": 4 / 12})


def test_late_comers_are_assessed_under_the_same_model() -> None:
    fed = FakeFederation("abcde", answers, participants="acd")
    state = fednoro().round(11, after_warm_up(), fed)
    assert (state.split.clean, state.split.noisy) == (("a",), ("c", "d"))
    assert state.split.not_assessed == {"b": "not seen yet", "e": "not seen yet"}
    assert state.yardstick == weights(50.0)
    assert state.model != weights(50.0)

    fed = FakeFederation("abcde", answers, participants="bc")
    state = fednoro().round(12, state, fed)
    assert fed.asked["measure_losses"].clients == ["b"]
    assert fed.asked["measure_losses"].payload == {"model": weights(50.0)}
    assert (state.split.clean, state.split.noisy) == (("a", "b"), ("c", "d"))
    assert fed.asked["train_clean"].clients == ["b"]
    assert fed.asked["train_clean"].payload["model"] == fed.asked["train_noisy"].payload["model"] != weights(50.0)

    fed = FakeFederation("abcde", answers, participants="de")
    state = fednoro().round(13, state, fed)
    assert (state.split.clean, state.split.noisy) == (("a", "b", "e"), ("c", "d"))
    assert (state.split.not_assessed, state.yardstick) == ({}, {})
    assert LossIdentificationState.from_tree(state.to_tree()).split is not None


def test_a_client_that_could_not_be_assessed_is_asked_again() -> None:
    fed = FakeFederation("abcd", answers, absent=("b",))
    state = fednoro().round(11, after_warm_up(), fed)
    assert state.split.not_assessed == {"b": DROPPED_OUT}
    fed = FakeFederation("abcd", answers, participants="cd")
    state = fednoro().round(12, state, fed)
    assert state.split.not_assessed == {"b": DROPPED_OUT}  # the reason stays
    fed = FakeFederation("abcd", answers)
    state = fednoro().round(13, state, fed)
    assert fed.asked["measure_losses"].clients == ["b"]
    assert state.split.clean == ("a", "b")


def test_a_round_in_which_nobody_answers_leaves_the_model() -> None:
    fed = FakeFederation("abcd", answers, absent=tuple("abcd"))
    assert fednoro().round(1, after_warm_up(), fed) == after_warm_up()
    state = fednoro().round(11, after_warm_up(), fed)
    assert state.model == weights(50.0)
    assert fed.values["loss"] is None
    later = FakeFederation("abcd", answers)
    state = fednoro().round(12, state, later)
    assert later.asked["measure_losses"].clients == ["a", "b", "c", "d"]
    assert state.split is not None and state.split.clean == ("a", "b")


def test_a_round_of_noisy_clients_alone_is_averaged_by_samples() -> None:
    state = fednoro().round(11, after_warm_up(), FakeFederation("abcd", answers))
    fed = FakeFederation("abcd", answers, participants="cd")
    assert fednoro().round(12, state, fed).model["w"].item() == 7.0


@pytest.mark.parametrize(
    ("losses", "fault"),
    [([1.0, NAN], None), ([NAN, NAN], "losses: there is none"), ([-1.0, 1.0], "losses: one is negative")],
)
def test_losses_that_are_none(losses: list[float], fault: str | None) -> None:
    assert Losses(torch.tensor(losses)).fault() == fault


# ---------------------------------------------------------------- on the client


def test_losses_by_class_are_means_over_the_given_labels(make_client: MakeClient) -> None:
    labels = [0, 0, 2, 2, 2, 5, 0, 9, 9, 9]
    client = make_client(10, labels=labels, state={"corrected_labels": torch.full((10,), 3)})
    module = client.module(weights_of(Tiny()))
    found = local_training.mean_loss_by_class(client, module)
    data = client.data
    with torch.no_grad():
        logits = module.eval()(data.preprocessing.normalise(data.images))
    own = F.cross_entropy(logits, torch.tensor(labels), reduction="none")
    for label in range(10):
        held = own[torch.tensor(labels) == label]
        assert found[label].item() == pytest.approx(held.mean().item(), nan_ok=True)
    assert [math.isnan(value) for value in found] == [label not in labels for label in range(10)]


def test_losses_are_of_augmented_images_or_of_plain_ones(make_client: MakeClient) -> None:
    def told(images: str) -> list[float]:
        losses = fednoro(identify={"images": images}).measure_losses(make_client(200), weights_of(Tiny())).losses
        return losses.tolist()

    client = make_client(200)
    module = client.module(weights_of(Tiny()))
    plain = local_training.mean_loss_by_class(client, module).tolist()
    augmented = local_training.mean_loss_by_class(client, module, is_augmented=True).tolist()
    assert told("plain") == plain != augmented == told("augmented")


def test_a_clean_client_trains_with_logit_adjustment_on_given_labels(make_client: MakeClient) -> None:
    def by_hand(client: Client, strength: float) -> dict[str, torch.Tensor]:
        counts = torch.bincount(client.data.labels, minlength=10).clamp_min(1).float()
        adjustment = train.logit_adjustment(counts / counts.sum(), strength)
        module = client.module(weights_of(Tiny()))
        local_training.train_with(
            fednoro(),
            client,
            module,
            lambda module, batch: train.la_loss(module(batch.images), batch.labels, adjustment),
        )
        return weights_of(module)

    for strength in (1.0, 0.0):
        corrected = make_client(state={"corrected_labels": torch.zeros(30, dtype=torch.int64)})
        sent = fednoro(la={"strength": strength}).train_clean(corrected, weights_of(Tiny()))
        expected = by_hand(make_client(), strength)
        assert all(torch.equal(sent.model[name], expected[name]) for name in expected)
        assert corrected.state == {}  # corrections from a time when it was called noisy are gone


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("rounds", "settings", "after"),
    [(100, {}, 10), (20, {}, 2), (3, {}, 1), (1, {}, 1)]
    + [(20, {"after": said}, n) for said, n in ((0.25, 5), (0.5, 10), (0.01, 1), (0, 0), (3, 3), (4.0, 4), (30, 30))],
)
def test_the_warm_up_scales_or_is_stated_in_rounds_or_as_a_share(
    rounds: int, settings: dict[str, Any], after: int
) -> None:
    assert fednoro(rounds, identify=settings).config.identify.after == after


@pytest.mark.parametrize("said", [-1, 2.5])
def test_an_impossible_warm_up_is_refused(said: float) -> None:
    with pytest.raises(ConfigError, match=r"identify\.after"):
        fednoro(identify={"after": said})


def test_without_a_warm_up_the_first_round_tells_clients_apart() -> None:
    assert fednoro(identify={"after": 0}).config.identify.after == 0
    fed = FakeFederation("abcd", answers)
    fednoro(identify={"after": 0}).round(1, after_warm_up(), fed)
    assert list(fed.asked) == ["measure_losses", "train_clean", "train_noisy"]
