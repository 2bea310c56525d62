"""What a noisy client weighs with the preset `plus`: the round's features, Stage I's, or both."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsir.methods.base import Client
from fedsir.methods.bayes_relabelling import corrected
from fedsir.methods.fedsir import FedSIR
from fedsir.models.weights import weights_of
from fedsir.stages.discriminant import ClassMoments
from tiny_network import Tiny

MakeClient = Callable[..., Client]
N = 200


def plus(**relabel: Any) -> FedSIR:
    return FedSIR(preset="plus", batch_size=8, relabel=relabel).resolved(20, is_pretrained=True)


def references(n_owned: int = 10) -> dict[str, Tensor]:
    """Return a discriminant that tells nothing apart."""
    return {
        "weights": torch.zeros(10, 6),
        "biases": torch.zeros(10),
        "is_owned": torch.arange(10) < n_owned,
    }


def noisy_client(make_client: MakeClient, true: Tensor, **state: Tensor) -> Client:
    """Return a client with two fifths of its labels one class too high."""
    labels = torch.where(torch.arange(N) % 5 < 2, (true + 1) % 10, true)
    return make_client(n=N, labels=labels.tolist(), state=state)


@pytest.fixture
def true(make_client: MakeClient) -> Tensor:
    return make_client(n=N).data.labels


def seen(true: Tensor) -> Tensor:
    """Return scores that know every class."""
    return 12 * torch.eye(10)[true]


def test_stage_one_is_remembered_where_the_initial_model_judges(make_client: MakeClient) -> None:
    told = {"references": references(), "temperature": {"guess": 0.35, "spread": 1.0}, "belief": "verdict"}
    for is_pretrained in (True, False):
        client = make_client()
        FedSIR(preset="plus").resolved(20, is_pretrained=is_pretrained).judge(client, weights_of(Tiny()), **told)
        assert float(client.state["temperature"]) == pytest.approx(0.35)
        assert ("first_scores" in client.state) == is_pretrained


@pytest.mark.parametrize(("evidence", "most_wrong"), [("likeliest", 0.0), ("round", 0.4)])
def test_labels_are_repaired_by_whichever_features_tell_more(
    make_client: MakeClient, true: Tensor, evidence: str, most_wrong: float
) -> None:
    client = noisy_client(make_client, true, first_scores=seen(true), temperature=torch.tensor(0.35))
    found = corrected(plus(evidence=evidence).config, client, Tiny().eval(), references())
    wrong = (found["corrected_labels"] != true).float().mean()
    assert wrong == pytest.approx(most_wrong, abs=0.01)  # features that say nothing leave every label as it is


def test_looks_at_different_classes_are_not_compared(make_client: MakeClient, true: Tensor) -> None:
    client = noisy_client(make_client, true, first_scores=seen(true), temperature=torch.tensor(0.35))
    alone = noisy_client(make_client, true, temperature=torch.tensor(0.35))
    found, expected = (corrected(plus().config, each, Tiny().eval(), references(n_owned=9)) for each in (client, alone))
    assert torch.equal(found["label_probabilities"], expected["label_probabilities"])


def test_who_counts_as_clean_forgets_what_stage_one_saw(make_client: MakeClient) -> None:
    client = make_client(state={"first_scores": torch.zeros(30, 10)})
    reply = plus().train_clean(client, weights_of(Tiny()), wants_spectra=True, spectra_model=None)
    assert isinstance(reply.moments, ClassMoments) and np.isfinite(reply.moments.sums).all()
    assert client.state == {}
