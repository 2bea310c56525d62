"""FedSIR's server half, on a federation that answers what a test wants and notes what it was asked."""

import math
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, trained, weights
from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT
from fedsir.methods.fedsir import FedSIR, FedSIRState
from fedsir.methods.fedsir_settings import FedSIRConfig
from fedsir.stages.split import ClientSplit

NAN = math.nan


def fedsir(**settings: Any) -> FedSIR:
    return FedSIR(FedSIRConfig.model_validate({"name": "fedsir", **settings}).resolved(100))


def told(mean: float, n_classes: int = 10) -> dict[str, Any]:
    return {"statistics": {"mean": mean, "energy": mean**2, "n_usable_classes": n_classes}}


# ---------------------------------------------------------------- Stage I

STAGE_ONE = {
    "a": told(0.30) | trained(0.0, 1),
    "b": told(0.31) | trained(4.0, 3),
    "c": told(0.80) | trained(100.0, 9),
    "d": told(0.82) | trained(100.0, 9),
}


def test_stage_one_starts_from_the_clean_average() -> None:
    fed = FakeFederation("abcd", lambda task, k: STAGE_ONE[k])
    state = fedsir().start(fed, weights(7.0))
    assert list(fed.asked) == ["identify"]
    assert fed.asked["identify"]["clients"] == ["a", "b", "c", "d"]
    assert fed.asked["identify"]["model"] == weights(7.0)
    assert state.split is not None
    assert state.split.clean == ("a", "b")
    assert state.split.noisy == ("c", "d")
    assert state.model["w"].tolist() == [3.0]  # (1 · 0 + 3 · 4) / 4
    assert state.clean_reference["w"].tolist() == [3.0]


def test_without_stage_one_training_the_initial_model_is_the_start() -> None:
    fed = FakeFederation("abcd", lambda task, k: {"statistics": STAGE_ONE[k]["statistics"]})
    state = fedsir(identify={"epochs": 0}).start(fed, weights(7.0))
    assert state.model == state.clean_reference == weights(7.0)
    assert fed.values["loss"] is None


def test_clients_that_could_not_be_assessed_count_as_noisy() -> None:
    replies = STAGE_ONE | {"e": told(NAN, 1) | trained(100.0, 50)}
    fed = FakeFederation("abcdef", lambda task, k: replies[k], absent=("f",))
    state = fedsir().start(fed, weights(0.0))
    assert state.split is not None
    assert state.split.noisy == ("c", "d")
    assert state.split.not_assessed == {"f": DROPPED_OUT, "e": "only 1 usable class(es); two are needed"}
    assert state.model["w"].tolist() == [3.0]  # nothing of theirs is in it


def test_without_a_clean_client_the_error_names_a_way_out() -> None:
    fed = FakeFederation("ab", lambda task, k: told(NAN, 1) | trained(0.0, 1))
    with pytest.raises(MethodError) as problem:
        fedsir().start(fed, weights(0.0))
    message = str(problem.value)
    assert "client a: only 1 usable class(es)" in message
    assert "Stage I of fedsir" in message and "data.partition" in message
    assert "fedavg" in message
    assert "\n" not in message


def test_a_way_out_fits_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def message(**changes: Any) -> str:
        fed = FakeFederation("ab", lambda task, k: told(0.3) | trained(0.0, 1), **changes)
        with pytest.raises(MethodError) as problem:
            fedsir().start(fed, weights(0.0))
        return str(problem.value)

    assert "(client a: dropped out). Lower dropout, or use" in message(absent=("a", "b"))
    everybody = ClientSplit((), ("a", "b"), {}, {}, {}, None, has_two_groups=True)
    monkeypatch.setattr("fedsir.methods.spectral_identification.split_clients", lambda *_, **__: everybody)
    assert "everybody into the noisy group. Set method.identify.split = auto, or use" in message()
    failed = ClientSplit((), ("a", "b"), {}, {}, {"a": "MemoryError"}, None, has_two_groups=False)
    monkeypatch.setattr("fedsir.methods.spectral_identification.split_clients", lambda *_, **__: failed)
    assert "(client a: MemoryError). Put that right, or use" in message(failures={"a": "MemoryError"})


def test_one_group_of_clients_may_be_left_whole() -> None:
    means = {"a": 0.40, "b": 0.41, "c": 0.42, "d": 0.43, "e": 0.44}
    fed = FakeFederation("abcde", lambda task, k: told(means[k]) | trained(1.0, 1))
    forced, careful = (fedsir(identify={"split": how}).start(fed, weights(0.0)) for how in ("always", "auto"))
    assert forced.split is not None
    assert careful.split is not None
    assert forced.split.noisy
    assert careful.split.noisy == ()


# ---------------------------------------------------------------- Stages II and III


def spectra(direction: list[float]) -> dict[str, torch.Tensor]:
    return {
        "directions": torch.tensor([direction]),
        "residuals": torch.tensor([[[-direction[1], direction[0]]]]),
        "residual_ranks": torch.tensor([1]),
        "counts": torch.tensor([500]),
        "gaps": torch.tensor([1.0]),
        "leading_shares": torch.tensor([1.0]),
    }


def state_of(clean: str, noisy: str) -> FedSIRState:
    split = ClientSplit(tuple(clean), tuple(noisy), {}, {}, {}, None, has_two_groups=True)
    return FedSIRState(model=weights(50.0), split=split, clean_reference=weights(40.0))


def answers(task: str, client: str) -> dict[str, Any]:
    """Return clean models 0 and 4 (1 and 3 samples), noisy ones 6 and 8 (4 and 4 samples)."""
    reply = {"a": trained(0.0, 1, 1.0), "b": trained(4.0, 3, 2.0), "c": trained(6.0, 4, 3.0), "d": trained(8.0, 4, 5.0)}
    extra = {"spectra": spectra([1.0, 0.0])} if task == "train_clean" else {"n_corrected": 2, "n_undecided": 1}
    return reply[client] | extra


def test_a_round_without_relabelling() -> None:
    fed = FakeFederation("abcd", answers)
    state = fedsir().round(20, state_of("ab", "cd"), fed)
    assert list(fed.asked) == ["train_clean", "train_noisy"]
    assert fed.asked["train_clean"] == {
        "clients": ["a", "b"],
        "model": weights(50.0),
        "wants_spectra": False,
        "spectra_model": None,
    }
    noisy = fed.asked["train_noisy"]
    assert noisy["clients"] == ["c", "d"]
    assert (noisy["references"], noisy["clean_reference"]) == (None, None)
    assert noisy["kd_weight"] == pytest.approx(0.2 * math.exp(-5 * (1 - 17 / 47) ** 2))  # r = 19, ramp 2 → 49
    # Distances to the nearest clean client are 2 and 4; over the largest, 0.5 and 1.
    raw = [1.0, 3.0, 4 * math.exp(-0.5), 4 * math.exp(-1)]
    shares = [value / sum(raw) for value in raw]
    assert list(fed.values["shares"].values()) == pytest.approx(shares)
    assert state.model["w"].item() == pytest.approx(4 * shares[1] + 6 * shares[2] + 8 * shares[3], rel=1e-6)
    assert state.clean_reference["w"].item() == 3.0  # by samples, over the clean clients of this round
    assert state.split == state_of("ab", "cd").split
    assert fed.values["loss_clean"] == pytest.approx(7 / 4)
    assert fed.values["loss_noisy"] == pytest.approx(4.0)
    assert (fed.values["relabelled"], fed.values["undecided"], fed.values["has_relabelled"]) == (4, 2, False)


def test_a_relabel_round_sends_references_and_the_clean_reference() -> None:
    fed = FakeFederation("abcd", answers)
    fedsir().round(21, state_of("ab", "cd"), fed)
    assert fed.asked["train_clean"]["wants_spectra"] is True
    assert fed.asked["train_clean"]["spectra_model"] == weights(40.0)
    noisy = fed.asked["train_noisy"]
    assert noisy["references"]["directions"].tolist() == [[1.0, 0.0]]
    assert noisy["clean_reference"] == weights(40.0)
    assert fed.values["has_relabelled"] is True


def test_in_the_paper_spectra_come_from_each_clients_own_model() -> None:
    fed = FakeFederation("abcd", answers)
    fedsir(preset="paper").round(20, state_of("ab", "cd"), fed)
    assert fed.asked["train_clean"]["wants_spectra"] is True
    assert fed.asked["train_clean"]["spectra_model"] is None
    assert fed.asked["train_noisy"]["clean_reference"] == weights(40.0)


def test_without_distance_awareness_shares_are_sample_shares() -> None:
    fed = FakeFederation("abcd", answers)
    state = fedsir(daagg={"enabled": False}).round(1, state_of("ab", "cd"), fed)
    assert fed.values["shares"] == {"a": 1 / 12, "b": 3 / 12, "c": 4 / 12, "d": 4 / 12}
    assert state.model["w"].item() == pytest.approx((12 + 24 + 32) / 12)


def test_with_raw_distances_far_models_fade() -> None:
    fed = FakeFederation("abcd", answers)
    fedsir(daagg={"distance": "raw"}).round(1, state_of("ab", "cd"), fed)
    shares = fed.values["shares"]
    assert shares["d"] / shares["a"] == pytest.approx(4 * math.exp(-4))


def test_without_relabelling_distillation_goes_on() -> None:
    fed = FakeFederation("abcd", answers)
    fedsir(relabel={"enabled": False}).round(81, state_of("ab", "cd"), fed)
    assert fed.asked["train_clean"]["wants_spectra"] is False
    assert fed.asked["train_noisy"]["references"] is None
    assert fed.asked["train_noisy"]["kd_weight"] == pytest.approx(0.2)


def test_without_distillation_relabelling_goes_on() -> None:
    fed = FakeFederation("abcd", answers)
    fedsir(kd={"enabled": False}).round(81, state_of("ab", "cd"), fed)
    assert fed.asked["train_noisy"]["kd_weight"] == 0.0
    assert fed.asked["train_noisy"]["references"] is not None


def test_a_round_of_noisy_clients_alone_keeps_the_clean_reference() -> None:
    fed = FakeFederation("abcd", answers, participants=("c", "d"))
    state = fedsir().round(21, state_of("ab", "cd"), fed)
    assert state.model["w"].item() == 7.0  # nobody clean to measure distances from: by samples
    assert state.clean_reference == weights(40.0)
    assert fed.asked["train_noisy"]["references"] is None  # nobody to teach
    assert fed.values["has_relabelled"] is False


def test_a_round_of_clean_clients_alone() -> None:
    fed = FakeFederation("abcd", answers, participants=("b",))
    state = fedsir().round(1, state_of("ab", "cd"), fed)
    assert state.model["w"].item() == state.clean_reference["w"].item() == 4.0


def test_a_round_in_which_nobody_answers_changes_nothing() -> None:
    fed = FakeFederation("abcd", answers, absent=("a", "b", "c", "d"))
    state = fedsir().round(1, state_of("ab", "cd"), fed)
    assert state == state_of("ab", "cd")


UNUSABLE: dict[str, dict[str, Any]] = {
    "not of unit length": spectra([3.0, 0.0]),
    "other feature size": {
        **spectra([1.0, 0.0]),
        "directions": torch.ones(1, 3) / 3**0.5,
        "residuals": torch.zeros(1, 1, 3),
    },
    "other number of classes": {**spectra([1.0, 0.0]), "counts": torch.tensor([500, 500])},
    "a field is missing": {"directions": torch.eye(2)[:1]},
    "a field too many": {**spectra([1.0, 0.0]), "more": torch.zeros(1)},
    "no tensors": dict.fromkeys(spectra([1.0, 0.0]), 1.0),
    "negative rank": {**spectra([1.0, 0.0]), "residual_ranks": torch.tensor([-1])},
}


@pytest.mark.parametrize("fault", UNUSABLE)
def test_spectra_that_are_not_what_they_claim_are_left_out(fault: str) -> None:
    def reply(task: str, client: str) -> dict[str, Any]:
        usual = answers(task, client)
        return usual | {"spectra": UNUSABLE[fault]} if (task, client) == ("train_clean", "b") else usual

    fed = FakeFederation("abcd", reply)
    fedsir().round(21, state_of("ab", "cd"), fed)
    assert list(fed.failures) == ["b"]
    assert fed.failures["b"].startswith("its spectra are unusable")
    assert fed.asked["train_noisy"]["references"]["directions"].tolist() == [[1.0, 0.0]]  # from a alone
    assert "b" in fed.values["shares"]  # its model is fine


def test_when_no_spectra_are_usable_the_round_goes_on_without() -> None:
    def reply(task: str, client: str) -> dict[str, Any]:
        return answers(task, client) | ({"spectra": spectra([9.0, 0.0])} if task == "train_clean" else {})

    fed = FakeFederation("abcd", reply)
    fedsir().round(21, state_of("ab", "cd"), fed)
    assert set(fed.failures) == {"a", "b"}
    assert fed.asked["train_noisy"]["references"] is None
    assert fed.values["has_relabelled"] is False


def test_a_state_survives_its_tree() -> None:
    state = state_of("ab", "cd")
    again = FedSIRState.from_tree(state.to_tree())
    assert again == state
    assert again.split is not state.split
