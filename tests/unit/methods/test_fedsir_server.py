"""FedSIR's server half, on a federation that answers what a test wants and notes what it was asked."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fake_federation import FakeFederation, weights
from fedsir.errors import MethodError
from fedsir.methods.base import DROPPED_OUT
from fedsir.methods.fedsir import FedSIR, FedSIRState, Repaired, Taught
from fedsir.methods.spectral_identification import Identified
from fedsir.stages.pairwise import NOTHING_SHARED, PairSimilarities
from fedsir.stages.relabel import ClassSpectra
from fedsir.stages.split import ClientSplit


def fedsir(**settings: Any) -> FedSIR:
    return FedSIR(**settings).resolved(100)


def told(mean: float, model: float = 1.0, n_samples: int = 1) -> Identified:
    return Identified(mean, mean**2, 10, n_samples, 1.0, weights(model))


ONE_CLASS = Identified(None, None, 1, 50, 1.0, weights(100.0))


# ---------------------------------------------------------------- Stage I

STAGE_ONE = {
    "a": told(0.30, 0.0, 1),
    "b": told(0.31, 4.0, 3),
    "c": told(0.80, 100.0, 9),
    "d": told(0.82, 100.0, 9),
}


def test_stage_one_starts_from_the_clean_average() -> None:
    fed = FakeFederation("abcd", lambda task, k: STAGE_ONE[k])
    state = fedsir().start(fed, weights(7.0))
    assert list(fed.asked) == ["identify"]
    assert fed.asked["identify"].clients == ["a", "b", "c", "d"]
    assert fed.asked["identify"].payload["model"] == weights(7.0)
    assert state.split.clean == ("a", "b")
    assert state.split.noisy == ("c", "d")
    assert state.model["w"].tolist() == [3.0]  # (1 · 0 + 3 · 4) / 4
    assert state.clean_reference["w"].tolist() == [3.0]


def test_without_stage_one_training_the_initial_model_is_the_start() -> None:
    fed = FakeFederation("abcd", lambda task, k: replace(STAGE_ONE[k], model=None, loss=None))
    state = fedsir(identify={"epochs": 0}).start(fed, weights(7.0))
    assert state.model == state.clean_reference == weights(7.0)
    assert fed.values["loss"] is None


def test_clients_that_could_not_be_assessed_are_neither_clean_nor_noisy() -> None:
    replies = STAGE_ONE | {"e": ONE_CLASS}
    fed = FakeFederation("abcdef", lambda task, k: replies[k], absent=("f",))
    state = fedsir().start(fed, weights(0.0))
    assert state.split.noisy == ("c", "d")
    assert state.split.not_assessed == {"f": DROPPED_OUT, "e": "only 1 usable class(es); two are needed"}
    assert state.model["w"].tolist() == [3.0]  # nothing of theirs is in it


def test_without_a_clean_client_the_error_names_a_way_out() -> None:
    fed = FakeFederation("ab", lambda task, k: ONE_CLASS)
    with pytest.raises(MethodError) as problem:
        fedsir().start(fed, weights(0.0))
    message = str(problem.value)
    assert "client a: only 1 usable class(es)" in message
    assert "Stage I of fedsir" in message and "data.partition" in message
    assert "fedavg" in message
    assert "\n" not in message


def test_a_way_out_fits_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def message(**changes: Any) -> str:
        fed = FakeFederation("ab", lambda task, k: told(0.3), **changes)
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
    fed = FakeFederation("abcde", lambda task, k: told(means[k]))
    forced, careful = (fedsir(identify={"split": how}).start(fed, weights(0.0)) for how in ("always", "auto"))
    assert forced.split.noisy
    assert careful.split.noisy == ()


def paired(mean: float, values: tuple[float, float, float]) -> Identified:
    """Return a client of three classes whose pairs have these similarities."""
    similarity = np.array(values, np.float32)
    pairs = PairSimilarities(similarity, 0 * similarity + np.float32(0.01))
    return replace(told(mean), n_usable_classes=3, pairs=pairs)


def test_clients_may_be_compared_by_pairs_of_classes() -> None:
    """By their means, a would be the odd one; pair by pair, c is, and by as much as its labels are wrong."""
    gap = math.nan
    replies = {
        "a": paired(0.80, (gap, 0.80, gap)),
        "b": paired(0.50, (0.30, 0.80, 0.40)),
        "c": paired(0.65, (0.60, 0.92, 0.70)),
        "d": paired(0.35, (0.30, gap, 0.40)),
        "e": told(0.5),  # leaves its pairs out
    }
    fed = FakeFederation("abcde", lambda task, k: replies[k])
    split = fedsir(identify={"split": "pairwise"}).start(fed, weights(0.0)).split
    assert (split.noisy, split.not_assessed) == (("c",), {"e": "it sent no pairs of classes"})
    assert split.effects["c"][0] > 0.3 and split.two_groups == "found"
    assert "note" not in fed.values


def test_where_no_pair_is_shared_the_run_says_so() -> None:
    gap = math.nan
    replies = {"a": paired(0.3, (0.3, gap, gap)), "b": paired(0.8, (gap, 0.8, gap))}
    fed = FakeFederation("ab", lambda task, k: replies[k])
    split = fedsir(identify={"split": "pairwise"}).start(fed, weights(0.0)).split
    assert (split.clean, split.two_groups) == (("a", "b"), "not found")
    assert fed.values["note"] == split.note == NOTHING_SHARED


# ---------------------------------------------------------------- Stages II and III


def spectra(*direction: float, rank: int = 12) -> ClassSpectra:
    """Return what one class of 500 samples looks like; its residual subspace has one vector, the others are zeros."""
    x, y = direction
    return ClassSpectra(
        directions=np.array([[x, y]]),
        residuals=np.array([[[-y, x]] + [[0.0, 0.0]] * (rank - 1)]),
        residual_ranks=np.array([1]),
        counts=np.array([500]),
        gaps=np.array([1.0]),
        leading_shares=np.array([1.0]),
    )


def state_of(clean: str, noisy: str) -> FedSIRState:
    split = ClientSplit(tuple(clean), tuple(noisy), {}, {}, {}, None, has_two_groups=True)
    return FedSIRState(model=weights(50.0), split=split, clean_reference=weights(40.0))


SENT = {"a": (0.0, 1, 1.0), "b": (4.0, 3, 2.0), "c": (6.0, 4, 3.0), "d": (8.0, 4, 5.0)}  # model, samples, loss


def answers(task: str, client: str) -> Taught | Repaired:
    model, n_samples, loss = SENT[client]
    if task == "train_clean":
        return Taught(weights(model), n_samples, loss, spectra(1.0, 0.0))
    return Repaired(weights(model), n_samples, loss, n_corrected=2, n_undecided=1)


def test_a_round_without_relabelling() -> None:
    fed = FakeFederation("abcd", answers)
    state = fedsir().round(20, state_of("ab", "cd"), fed)
    assert list(fed.asked) == ["train_clean", "train_noisy"]
    clean = fed.asked["train_clean"]
    assert clean.clients == ["a", "b"]
    assert clean.payload == {"model": weights(50.0), "wants_spectra": False, "spectra_model": None}
    assert fed.asked["train_noisy"].clients == ["c", "d"]
    noisy = fed.asked["train_noisy"].payload
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


@pytest.mark.parametrize(("preset", "t", "spectra_model"), [("authors", 21, weights(40.0)), ("paper", 20, None)])
def test_a_relabel_round_sends_references_and_the_clean_reference(preset: str, t: int, spectra_model: Any) -> None:
    fed = FakeFederation("abcd", answers)
    fedsir(preset=preset).round(t, state_of("ab", "cd"), fed)
    assert fed.asked["train_clean"].payload["wants_spectra"] is True
    assert fed.asked["train_clean"].payload["spectra_model"] == spectra_model  # in the paper each client's own
    noisy = fed.asked["train_noisy"].payload
    assert noisy["references"]["directions"].tolist() == [[1.0, 0.0]]
    assert noisy["clean_reference"] == weights(40.0)
    assert fed.values["has_relabelled"] is True


def test_shares_by_samples_or_by_raw_distances() -> None:
    by_samples, raw = (FakeFederation("abcd", answers) for _ in range(2))
    state = fedsir(daagg={"enabled": False}).round(1, state_of("ab", "cd"), by_samples)
    assert by_samples.values["shares"] == {"a": 1 / 12, "b": 3 / 12, "c": 4 / 12, "d": 4 / 12}
    assert state.model["w"].item() == pytest.approx((12 + 24 + 32) / 12)
    fedsir(daagg={"distance": "raw"}).round(1, state_of("ab", "cd"), raw)
    assert raw.values["shares"]["d"] / raw.values["shares"]["a"] == pytest.approx(4 * math.exp(-4))


def test_a_round_of_noisy_clients_alone_keeps_the_clean_reference() -> None:
    fed = FakeFederation("abcd", answers, participants=("c", "d"))
    state = fedsir().round(21, state_of("ab", "cd"), fed)
    assert state.model["w"].item() == 7.0  # nobody clean to measure distances from: by samples
    assert state.clean_reference == weights(40.0)
    assert fed.asked["train_noisy"].payload["references"] is None  # nobody to teach
    assert fed.values["has_relabelled"] is False


def test_a_round_of_clean_clients_alone_or_of_nobody() -> None:
    state = fedsir().round(1, state_of("ab", "cd"), FakeFederation("abcd", answers, participants=("b",)))
    assert state.model["w"].item() == state.clean_reference["w"].item() == 4.0
    nobody = FakeFederation("abcd", answers, absent=("a", "b", "c", "d"))
    assert fedsir().round(1, state_of("ab", "cd"), nobody) == state_of("ab", "cd")


@pytest.mark.parametrize(("others", "has_relabelled"), [("a", True), ("", False)])
def test_spectra_of_another_rank_are_left_out(others: str, has_relabelled: bool) -> None:
    def reply(task: str, client: str) -> Taught | Repaired:
        usual = answers(task, client)
        if isinstance(usual, Repaired) or client in others:
            return usual
        return replace(usual, spectra=spectra(1.0, 0.0, rank=3))

    fed = FakeFederation("abcd", reply)
    fedsir().round(21, state_of("ab", "cd"), fed)
    odd = set("ab") - set(others)
    assert fed.failures == dict.fromkeys(odd, "its spectra do not have 12 residual vectors per class")
    assert (fed.asked["train_noisy"].payload["references"] is not None) == has_relabelled
    assert fed.values["has_relabelled"] == has_relabelled
    assert set(fed.values["shares"]) == set("abcd")  # their models are fine


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (spectra(3.0, 0.0), "unit"),
        (replace(spectra(1.0, 0.0), residual_ranks=np.array([-1])), "rank"),
        (replace(spectra(1.0, 0.0), counts=np.array([-5])), "count"),
    ],
)
def test_spectra_that_are_not_what_they_claim_are_a_fault(wrong: ClassSpectra, fault: str) -> None:
    found = Taught(weights(0.0), 1, 1.0, wrong).fault()
    assert found is not None and fault in found
    assert Taught(weights(0.0), 1, 1.0, spectra(1.0, 0.0)).fault() is None
