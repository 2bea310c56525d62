"""The evaluator: what labels clients train on now, and how wrong they are, without reading every state every round."""

from typing import Any

import numpy as np
import pytest
import torch

from fedsir.data.config import DataConfig
from fedsir.data.dealing import build_federation
from fedsir.data.source import load_source
from fedsir.engines.wire import encode
from fedsir.simulation import evaluation
from fedsir.simulation.evaluation import Evaluator


@pytest.fixture
def evaluator(tmp_path: Any) -> Evaluator:
    config = DataConfig(n_clients=4, n_train=80, noise_rate=0.5, noisy_clients=2, min_samples=5)
    return Evaluator(build_federation(config, load_source("digits", data_dir=tmp_path, seed=0), seed=0))


def corrected_to(evaluator: Evaluator, client: str, label: int) -> bytes:
    n = evaluator.data.size_by_client[client]
    return encode({"corrected_labels": torch.full((n,), label)})


def test_corrected_labels_stand_in_their_clients_rows(evaluator: Evaluator) -> None:
    given = evaluator.data.given_labels
    assert (evaluator.corrected_labels({}) == given).all()
    found = evaluator.corrected_labels({"2": corrected_to(evaluator, "2", 7), "1": encode({"other": torch.ones(2)})})
    rows = evaluator.data.rows("2")
    assert (found[rows] == 7).all()
    assert (np.delete(found, rows) == np.delete(given, rows)).all()


def test_only_states_that_changed_are_read(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    states = {client: corrected_to(evaluator, client, 1) for client in evaluator.data.clients}
    read: list[bytes] = []

    def counted(state: bytes) -> Any:
        read.append(state)
        return real(state)

    real = evaluation.decode
    monkeypatch.setattr(evaluation, "decode", counted)
    evaluator.corrected_labels(states)
    assert len(read) == 4
    states["3"] = corrected_to(evaluator, "3", 5)
    found = evaluator.corrected_labels(states)
    assert read[4:] == [states["3"]]
    assert (found[evaluator.data.rows("3")] == 5).all()
    assert (found[evaluator.data.rows("0")] == 1).all()


def test_a_state_that_is_gone_gives_the_given_labels_back(evaluator: Evaluator) -> None:
    states = {"0": corrected_to(evaluator, "0", 1), "1": corrected_to(evaluator, "1", 1)}
    evaluator.corrected_labels(states)
    del states["0"]
    found = evaluator.corrected_labels(states)
    given = evaluator.data.given_labels
    assert (found[evaluator.data.rows("0")] == given[evaluator.data.rows("0")]).all()
    assert (found[evaluator.data.rows("1")] == 1).all()
    assert (evaluator.corrected_labels({"1": encode({})}) == given).all()


def test_what_is_returned_may_be_changed(evaluator: Evaluator) -> None:
    evaluator.corrected_labels({})[:] = 9
    assert (evaluator.corrected_labels({}) == evaluator.data.given_labels).all()


def test_the_noise_left_is_that_of_the_full_report(evaluator: Evaluator) -> None:
    states = {client: corrected_to(evaluator, client, 3) for client in evaluator.truth.noisy_clients[:1]}
    corrected = evaluator.corrected_labels(states)
    report, _ = evaluator.relabelling(corrected)
    assert 0 < report.noise_after < 1  # type: ignore[operator]
    assert evaluator.noise_after(corrected) == report.noise_after
    assert evaluator.noise_after(evaluator.truth.true_labels) == 0  # type: ignore[arg-type]


def test_no_noise_is_left_where_nobody_is_noisy(tmp_path: Any) -> None:
    clean = DataConfig(n_clients=2, n_train=40, noise="none")
    data = build_federation(clean, load_source("digits", data_dir=tmp_path, seed=0), seed=0)
    assert Evaluator(data).noise_after(data.given_labels) is None


def test_the_last_estimate_of_a_client_is_scored(evaluator: Evaluator) -> None:
    true = evaluator.data.noise_by_client()
    assert true is not None
    rounds = [
        {},
        {"noise_rate_by_client": {"0": 1.0, "1": true["1"] + 0.1}},
        {"noise_rate_by_client": {"0": true["0"]}},
    ]
    report = evaluator.noise_rates(rounds)
    assert report is not None
    assert (report.mean, report.max, report.n_clients) == (pytest.approx(0.05), pytest.approx(0.1), 2)
    assert evaluator.noise_rates([{}]) is None
