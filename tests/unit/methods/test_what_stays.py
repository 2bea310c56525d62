"""What stays with a client: classes with few samples, and what nobody computes with."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fedsir.engines.wire import decode, encode
from fedsir.errors import ConfigError
from fedsir.methods.base import Client
from fedsir.methods.bayes_relabelling import moments_of
from fedsir.methods.fedsir import FedSIR
from fedsir.methods.reply_check import to_tree
from fedsir.models.weights import weights_of
from tiny_network import Tiny

MakeClient = Callable[..., Client]
FEW = [0] * 14 + [1] * 13 + [2] * 3


def fedsir(**settings: Any) -> FedSIR:
    return FedSIR(batch_size=8, **settings).resolved(100)


def test_sums_are_those_of_a_client_without_the_class(make_client: MakeClient) -> None:
    client, module = make_client(labels=FEW), Tiny().eval()
    kept, without = moments_of(client, module, 4), moments_of(make_client(n=27, labels=FEW[:27]), module, 1)
    assert kept.counts.tolist() == without.counts.tolist()
    assert np.allclose(kept.sums, without.sums) and np.allclose(kept.second_moment, without.second_moment)
    assert moments_of(client, module, 3).counts.sum() == 30


def test_directions_and_pairs_of_the_class_stay(make_client: MakeClient) -> None:
    model = weights_of(Tiny())
    settings = {"identify": {"epochs": 0, "min_class_samples": 1, "split": "pairwise"}, "min_class_samples": 6}
    labels = [0] * 13 + [1] * 12 + [2] * 5
    method = fedsir(**settings, relabel={"residual_rank": 2, "residual": "after_direction"})
    taught = method.train_clean(make_client(labels=labels), model, wants_spectra=True, spectra_model=None).spectra
    assert taught is not None
    assert taught.counts.tolist() == [13, 12] + [0] * 8
    assert taught.directions[:2].any(axis=1).all() and not taught.directions[2:].any()
    assert not taught.residuals[2:].any()
    pairs = method.identify(make_client(labels=labels), model).pairs
    assert pairs is not None
    assert np.isfinite(pairs.similarity).sum() <= 1


def test_residual_subspaces_leave_only_where_somebody_looks_at_them(make_client: MakeClient) -> None:
    model = weights_of(Tiny())

    def taught(**settings: Any) -> Any:
        method = fedsir(preset="paper", share="minimal", **settings)
        reply = method.train_clean(make_client(), model, wants_spectra=True, spectra_model=None)
        assert reply.loss is None
        return decode(encode(to_tree(reply)))["spectra"]

    alone = taught(relabel={"rule": "direction"})
    assert alone["residuals"].numel() == 0 and alone["directions"].any()
    assert not alone["gaps"].any() and not alone["leading_shares"].any()
    assert taught(relabel={"rule": "agreement"})["residuals"].any()
    assert taught(relabel={"rule": "direction"}, kd={"on": "undecided"})["residuals"].any()
    assert taught(relabel={"rule": "direction", "weight": "count_gap_share"})["gaps"].any()


def test_the_first_model_stays_until_it_is_asked_for(make_client: MakeClient) -> None:
    method, model = fedsir(share="minimal", identify={"epochs": 1}), weights_of(Tiny())
    client = make_client()
    reply = method.identify(client, model)
    assert (reply.model, reply.loss) == (None, None)
    sent = fedsir(identify={"epochs": 1}).identify(make_client(), model).model
    handed = method.hand_over(client)
    assert sent is not None and all(torch.equal(handed.model[name], sent[name]) for name in sent)
    assert client.state == {} and handed.loss is None
    method.identify(client, model)
    method.train_clean(client, model, wants_spectra=False, spectra_model=None)
    assert client.state == {}


def test_clients_split_by_noise_rates_are_compared_under_all_their_models(make_client: MakeClient) -> None:
    method = fedsir(preset="plus", share="minimal", identify={"epochs": 1})
    assert method.identify(make_client(), weights_of(Tiny())).model is not None
    assert not method.config.hands_over


def test_doubt_leaves_where_models_are_weighed_by_it() -> None:
    assert "doubt" not in fedsir(preset="plus", share="minimal").config.stays["train_noisy"]
    by_distance = fedsir(preset="plus", share="minimal", daagg={"weigh_by": "distance"})
    assert "doubt" in by_distance.config.stays["train_noisy"]


def test_what_is_no_way_to_share_is_refused() -> None:
    with pytest.raises(ConfigError, match="share"):
        fedsir(share="nothing")
