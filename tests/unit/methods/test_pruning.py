"""Pruning: FedSIR's Stage I, then the clean clients alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fake_federation import FakeFederation, trained, weights
from fedsir.methods.base import Client, ServerState
from fedsir.methods.fedsir import FedSIR
from fedsir.methods.pruning import Pruning
from fedsir.methods.spectral_identification import Identified
from fedsir.models.weights import weights_of
from fedsir.stages.split import ClientSplit
from tiny_network import Tiny


def pruning(**settings: Any) -> Pruning:
    return Pruning(batch_size=8, **settings)


def told(mean: float, n_samples: int, loss: float) -> Identified:
    return Identified(mean, mean**2, 10, n_samples, loss, model=None)


STAGE_ONE = {"a": told(0.30, 1, 1.0), "b": told(0.31, 3, 3.0), "c": told(0.80, 9, 9.0), "d": told(0.82, 9, 9.0)}
SPLIT = ClientSplit(("a", "b"), ("c", "d"), {}, {}, {}, None, has_two_groups=True)


def test_training_begins_from_the_initial_model() -> None:
    fed = FakeFederation("abcd", lambda task, k: STAGE_ONE[k])
    state = pruning().start(fed, weights(7.0))
    assert fed.asked["identify"].clients == ["a", "b", "c", "d"]
    assert state.model == weights(7.0)
    assert (state.split.clean, state.split.noisy) == (("a", "b"), ("c", "d"))
    assert fed.values["loss"] == pytest.approx((1 + 9) / 4)  # of the clean clients


def test_a_round_is_the_clean_clients_average() -> None:
    models = {"a": trained(0.0, 1, 1.0), "b": trained(4.0, 3, 3.0)}
    fed = FakeFederation("abcd", lambda task, k: models[k])
    state = pruning().round(1, ServerState(weights(7.0), SPLIT), fed)
    assert fed.asked["train"].clients == ["a", "b"]
    assert state.model["w"].tolist() == [3.0]  # (1 · 0 + 3 · 4) / 4
    assert state.split == SPLIT
    assert fed.values["loss"] == pytest.approx((1 + 9) / 4)


@pytest.mark.parametrize("who", [{"participants": ("c", "d")}, {"absent": ("a", "b")}])
def test_a_round_without_clean_clients_changes_nothing(who: dict[str, Any]) -> None:
    fed = FakeFederation("abcd", lambda task, k: trained(1.0, 1), **who)
    assert pruning().round(1, ServerState(weights(7.0), SPLIT), fed) == ServerState(weights(7.0), SPLIT)
    assert fed.values["loss"] is None


def test_a_client_tells_what_fedsirs_would_but_keeps_its_model(make_client: Callable[..., Client]) -> None:
    full = FedSIR(batch_size=8).identify(make_client(), weights_of(Tiny()))
    own = pruning().identify(make_client(), weights_of(Tiny()))
    assert own == replace(full, model=None)
    assert full.model is not None


def test_clients_split_by_noise_rates_send_the_model_that_they_are_compared_under(
    make_client: Callable[..., Client],
) -> None:
    own = pruning(identify={"split": "rates"}).identify(make_client(), weights_of(Tiny()))
    assert own.model is not None
