"""Pruning: FedSIR's Stage I, then the clean clients alone."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from fake_federation import FakeFederation, trained, weights
from fedsir.errors import MethodError
from fedsir.methods.base import Client, ServerState
from fedsir.methods.fedsir import FedSIR
from fedsir.methods.fedsir_settings import FedSIRConfig
from fedsir.methods.pruning import Pruning, PruningConfig
from fedsir.models.weights import weights_of
from fedsir.stages.split import ClientSplit
from tiny_network import Tiny


def pruning(**settings: Any) -> Pruning:
    return Pruning(PruningConfig.model_validate({"name": "pruning", "batch_size": 8, **settings}))


def told(mean: float, n_classes: int = 10, **more: Any) -> dict[str, Any]:
    return {"statistics": {"mean": mean, "energy": mean**2, "n_usable_classes": n_classes}, **more}


STAGE_ONE = {
    "a": told(0.30, loss=1.0, n_samples=1),
    "b": told(0.31, loss=3.0, n_samples=3),
    "c": told(0.80, loss=9.0, n_samples=9),
    "d": told(0.82, loss=9.0, n_samples=9),
}
SPLIT = ClientSplit(("a", "b"), ("c", "d"), {}, {}, {}, None, has_two_groups=True)


def test_training_begins_from_the_initial_model() -> None:
    fed = FakeFederation("abcd", lambda task, k: STAGE_ONE[k])
    state = pruning().start(fed, weights(7.0))
    assert fed.asked["identify"]["clients"] == ["a", "b", "c", "d"]
    assert state.model == weights(7.0)
    assert state.split is not None
    assert (state.split.clean, state.split.noisy) == (("a", "b"), ("c", "d"))
    assert fed.values["loss"] == pytest.approx((1 + 9) / 4)  # of the clean clients


def test_stage_one_without_training_has_no_loss() -> None:
    fed = FakeFederation("abcd", lambda task, k: {"statistics": STAGE_ONE[k]["statistics"]})
    pruning(identify={"epochs": 0}).start(fed, weights(7.0))
    assert fed.values["loss"] is None


def test_a_round_is_the_clean_clients_average() -> None:
    models = {"a": trained(0.0, 1, 1.0), "b": trained(4.0, 3, 3.0)}
    fed = FakeFederation("abcd", lambda task, k: models[k])
    state = pruning().round(1, ServerState(weights(7.0), SPLIT), fed)
    assert fed.asked["train"] == {"clients": ["a", "b"], "model": weights(7.0)}
    assert state.model["w"].tolist() == [3.0]  # (1 · 0 + 3 · 4) / 4
    assert state.split == SPLIT
    assert fed.values["loss"] == pytest.approx((1 + 9) / 4)


@pytest.mark.parametrize("who", [{"participants": ("c", "d")}, {"absent": ("a", "b")}])
def test_a_round_without_clean_clients_changes_nothing(who: dict[str, Any]) -> None:
    fed = FakeFederation("abcd", lambda task, k: trained(1.0, 1), **who)
    assert pruning().round(1, ServerState(weights(7.0), SPLIT), fed) == ServerState(weights(7.0), SPLIT)
    assert fed.values["loss"] is None


def test_without_a_clean_client_the_error_names_a_way_out() -> None:
    fed = FakeFederation("ab", lambda task, k: told(math.nan, 1))
    with pytest.raises(MethodError, match=r"Stage I of pruning.*only 1 usable class.*data\.partition.*fedavg"):
        pruning().start(fed, weights(0.0))


def test_a_client_tells_what_fedsirs_would_but_keeps_its_model(make_client: Callable[..., Client]) -> None:
    fedsir = FedSIR(FedSIRConfig.model_validate({"name": "fedsir", "batch_size": 8}))
    full = fedsir.identify(make_client(), weights_of(Tiny()))
    own = pruning().identify(make_client(), weights_of(Tiny()))
    assert own == {name: full[name] for name in ("n_samples", "loss", "statistics")}
    assert "model" in full
