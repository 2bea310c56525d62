"""FedNed: who is extremely noisy, what is averaged and what is unlearnt, and the published behaviour beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fake_federation import FakeFederation, weights
from fedsir.data.source import Source
from fedsir.methods.base import Client, Server
from fedsir.methods.fedned import Distilled, FedNed, FedNedState, Score, Targets, TrainedTwice
from fedsir.methods.fedned_math import negative_loss
from fedsir.methods.local_training import sure_labels
from fedsir.models.weights import weights_of
from fedsir.randomness import KeyedRandom
from tiny_network import Tiny, always

MakeClient = Callable[..., Client]
CLIENTS = "abcde"
MODEL = dict(zip(CLIENTS, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True))
SIZE = dict(zip(CLIENTS, (1, 1, 2, 2, 4), strict=True))
NOISY_MODEL = -10.0


def fedned(rounds: int = 100, **settings: Any) -> FedNed:
    return FedNed(batch_size=8, **settings).resolved(rounds)


def test_warm_up_grows_with_the_rounds() -> None:
    assert [fedned(rounds).config.warm_up for rounds in (100, 20, 2)] == [10, 2, 0]
    assert fedned(100, warm_up=3).config.warm_up == 3


# ---------------------------------------------------------------- server


def answer(task: str, client: str) -> TrainedTwice:
    noisy_model = weights(NOISY_MODEL) if task == "train_extreme" else None
    return TrainedTwice(weights(MODEL[client]), SIZE[client], 1.0, noisy_model)


@dataclass
class Computing(FakeFederation):
    """Scores models by `scores`, one per value of w; notes teachers and what is distilled."""

    scores: Mapping[float, float | None] = field(default_factory=dict)
    computed: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def compute(self, task: Any, each: Mapping[str, Any] | None = None, **payload: Any) -> dict[str, Any]:
        done: dict[str, Any] = {}
        for key, value in ({"": {}} if each is None else each).items():
            told = payload | value
            self.computed.append((task.__name__, told))
            w = told["model"]["w"].item()
            done[key] = {
                "score": Score(self.scores.get(w, 1.0)),
                "bad_answers": Targets(torch.full((2, 2), w)),
                "distil": Distilled(weights(w + 100), [2.0, 1.0]),
            }[task.__name__]
        return done

    def teachers(self) -> list[float]:
        return [told["model"]["w"].item() for task, told in self.computed if task == "bad_answers"]


def state(*extreme: str) -> FedNedState:
    return FedNedState(model=weights(0.0), extreme=list(extreme))


def test_warm_up_is_fedavg() -> None:
    fed = Computing(CLIENTS, answer)
    after = fedned().round(10, state(), fed)
    assert after.model["w"].item() == pytest.approx((1 + 2 + 6 + 8 + 20) / 10)
    assert (after.split, fed.computed) == (None, [])
    assert "train_extreme" not in fed.asked


def test_equal_models_have_equal_shares_and_nobody_is_extreme() -> None:
    fed = Computing(CLIENTS, answer)
    after = fedned().round(11, state(), fed)
    assert fed.values["uncertainty"] == dict.fromkeys(CLIENTS, 1.0)
    assert fed.values["mean_uncertainty"] == 1.0
    assert after.model["w"].item() == pytest.approx((1 + 2 + 6 + 8 + 20) / 10)
    assert [task for task, _ in fed.computed] == ["score"] * 5  # no bad teacher: nothing is distilled
    assert after.split is not None and after.split.noisy == ()
    assert after.split.not_assessed == {}


# Uncertainties 1, 1, 1, 1 and 3 for e: their mean is 1.4, so that e has 2.14 times it.
ONE_DOUBTS = {5.0: 3.0}


def test_an_uncertain_model_is_left_out_and_unlearnt() -> None:
    fed = Computing(CLIENTS, answer, scores=ONE_DOUBTS)
    after = fedned().round(11, state(), fed)
    assert fed.values["uncertainty"]["e"] == pytest.approx(3 / 1.4)
    assert fed.values["left_out"] == after.extreme == ["e"]
    averaged = (1 + 2 + 6 + 8) / 6
    assert after.model["w"].item() == pytest.approx(averaged + 100)  # distilled
    assert fed.teachers() == [5.0]
    task, told = fed.computed[-1]
    assert task == "distil" and told["model"]["w"].item() == pytest.approx(averaged)
    assert torch.equal(told["targets"], torch.full((2, 2), 5.0))
    assert (after.split.clean, after.split.noisy) == (("a", "b", "c", "d"), ("e",))
    assert after.split.statistics["e"] == (pytest.approx(3 / 1.4),)
    assert (fed.values["bad_teachers"], fed.values["distillation_losses"]) == (1, [2.0, 1.0])
    assert FedNedState.from_tree(after.to_tree()) == after
    off = Computing(CLIENTS, answer, scores=ONE_DOUBTS)
    published = fedned(negative_distillation=False).round(11, state(), off)
    assert published.model["w"].item() == pytest.approx(averaged)
    assert ({task for task, _ in off.computed}, published.extreme) == ({"score"}, ["e"])


@pytest.mark.parametrize(("participants", "share"), [("abcde", 3 / 1.4), ("ce", 3 / 2)])
def test_the_threshold_is_in_units_of_the_mean_of_those_who_are_there(participants: str, share: float) -> None:
    # λ = 0.12 for ten participants is 1.2 times their mean; for two a share of 0.12 would accuse everybody.
    for threshold, is_extreme in ((share - 0.01, True), (share + 0.01, False)):
        fed = Computing(CLIENTS, answer, scores=ONE_DOUBTS, participants=list(participants))
        after = fedned(threshold=threshold).round(11, state(), fed)
        assert after.extreme == (["e"] if is_extreme else [])


def test_all_draw_the_same_images() -> None:
    fed = Computing(CLIENTS, answer, scores=ONE_DOUBTS)
    fedned().round(11, state(), fed)
    draws = {task: {told["draw"] for t, told in fed.computed if t == task} for task, _ in fed.computed}
    assert {len(drawn) for drawn in draws.values()} == {1}
    assert draws["bad_answers"] == draws["distil"] != draws["score"]


def test_once_extreme_always_asked_for_two_models() -> None:
    fed = Computing(CLIENTS, answer)
    after = fedned().round(12, state("b"), fed)
    assert fed.asked["train"].clients == ["a", "c", "d", "e"]
    assert fed.asked["train_extreme"].clients == ["b"]
    # Its pseudo-labelled model is averaged, the other one unlearnt.
    assert after.model["w"].item() == pytest.approx((1 + 2 + 6 + 8 + 20) / 10 + 100)
    assert fed.teachers() == [NOISY_MODEL]
    assert after.extreme == ["b"]
    assert (fed.values["left_out"], fed.values["pseudo_labelled"]) == ([], 1)


def test_an_extreme_clients_pseudo_labelled_model_may_be_left_out_too() -> None:
    fed = Computing(CLIENTS, answer, scores={2.0: 9.0})
    after = fedned().round(12, state("b"), fed)
    assert after.model["w"].item() == pytest.approx((1 + 6 + 8 + 20) / 9 + 100)
    assert fed.teachers() == [NOISY_MODEL]  # once, and not the one on pseudo-labels


def test_a_client_without_a_sure_pseudo_label_has_nothing_to_average() -> None:
    def reply(task: str, client: str) -> TrainedTwice:
        return answer(task, client) if task == "train" else TrainedTwice(None, 0, 1.0, weights(NOISY_MODEL))

    fed = Computing(CLIENTS, reply, scores={NOISY_MODEL: 2.0})
    after = fedned().round(12, state("b"), fed)
    assert fed.values["uncertainty"]["b"] == pytest.approx(2 / 1.2)  # of the model that it has
    assert fed.values["uncertainty"]["a"] == pytest.approx(1 / 1.2)  # so that nobody else moves up
    assert after.model["w"].item() == pytest.approx((1 + 6 + 8 + 20) / 9 + 100)
    assert (fed.values["left_out"], fed.values["pseudo_labelled"]) == (["b"], 0)
    sure_enough = Computing(CLIENTS, reply)  # below the threshold, and still nothing of it is averaged
    fedned().round(12, state("b"), sure_enough)
    assert sure_enough.values["left_out"] == ["b"]
    nobody = Computing(CLIENTS, reply, participants=["b"])
    assert fedned().round(12, state("b"), nobody).model["w"].item() == 0.0


def test_nobody_answers() -> None:
    fed = Computing(CLIENTS, answer, absent=tuple(CLIENTS))
    after = fedned().round(12, state("b"), fed)
    assert after.model["w"].item() == 0.0
    assert after.extreme == ["b"]


def test_a_model_without_a_score_is_rejected() -> None:
    fed = Computing(CLIENTS, answer, scores={3.0: None})
    after = fedned().round(11, state(), fed)
    assert list(fed.failures) == ["c"]
    assert after.model["w"].item() == pytest.approx((1 + 2 + 8 + 20) / 8)


def test_many_models_are_looked_at_a_few_at_a_time() -> None:
    clients = [f"c{i}" for i in range(20)]
    fed = Computing(clients, lambda task, client: TrainedTwice(weights(float(client[1:])), 1, 1.0))
    fedned().round(11, state(), fed)
    assert [told["model"]["w"].item() for _, told in fed.computed] == [float(i) for i in range(20)]


# ---------------------------------------------------------------- where the server computes

START = weights_of(Tiny())


@pytest.fixture
def server(digits: Source) -> Server:
    public = torch.from_numpy(digits.test_images[:40])
    return Server(
        random=KeyedRandom(0), new_module=Tiny, device="cpu", preprocessing=digits.preprocessing, public=public
    )


def with_head(scale: float) -> dict[str, torch.Tensor]:
    return START | {"head.weight": START["head.weight"] * scale}


def test_uncertainty_is_a_mean_entropy(server: Server) -> None:
    method = fedned(public_batch_size=16)
    none, some, most = (method.score(server, with_head(scale), draw=1).uncertainty for scale in (1000, 3, 0))
    assert none is not None and some is not None and most is not None and none < some < most
    assert most == pytest.approx(2.302585, rel=1e-5)  # all classes alike: log 10
    all_forty = fedned(public_batch_size=100).score(server, with_head(0), draw=1).uncertainty
    assert all_forty == pytest.approx(2.302585, rel=1e-5)


def test_the_same_model_has_the_same_score_whoever_sent_it(server: Server) -> None:
    scores = [fedned().score(server, START, draw=1).uncertainty for _ in range(2)]
    assert scores[0] == scores[1] != fedned().score(server, START, draw=2).uncertainty
    assert fedned(dropout=0.0).score(server, START, draw=1).uncertainty != scores[0]


def test_distillation_moves_the_student_towards_the_targets_and_leaves_statistics_alone(server: Server) -> None:
    method = fedned(public_batch_size=16, distillation_steps=5, distillation_lr=0.003)
    targets = method.bad_answers(server, with_head(3), draw=1).targets
    assert targets.shape == (80, 10)
    assert targets.sum(dim=1).tolist() == pytest.approx([1.0] * 80)
    done = method.distil(server, START, targets, draw=1)
    images = torch.cat(list(method.distillation_batches(server, 1).images(0, 5)))
    with torch.no_grad():
        before, after = (
            negative_loss(server.module(model).eval()(images), targets, 2.0).item() for model in (START, done.model)
        )
    assert after < before
    assert len(done.losses) == 2
    for name in ("norm.running_mean", "norm.running_var", "norm.num_batches_tracked"):
        assert torch.equal(done.model[name], START[name])


# ---------------------------------------------------------------- client


def test_an_extreme_client_trains_two_models(make_client: MakeClient) -> None:
    client = make_client(20)
    reply = fedned(lr=0.1, weight_decay=0.0).train_extreme(client, model=always(7))
    assert reply.n_samples == 20
    assert reply.model is not None and reply.noisy_model is not None
    # All pseudo-labels are 7, which the model says anyway; only the given labels have something to teach.
    assert reply.loss == pytest.approx(0, abs=1e-4)
    assert torch.allclose(reply.model["head.bias"], always(7)["head.bias"])
    assert (reply.noisy_model["head.bias"] - always(7)["head.bias"]).abs().max() > 0.1
    assert client.state == {}  # given labels stay as they are


def test_only_sure_samples_are_pseudo_labelled(make_client: MakeClient) -> None:
    # At temperature 2 a logit of 2 log 81 above nine others is sure by 81 / 90 = 0.9.
    unsure = always(7, strength=8.788898)
    assert fedned(confidence=0.89).train_extreme(make_client(20), model=unsure).n_samples == 20
    nothing = fedned(confidence=0.91).train_extreme(make_client(20), model=unsure)
    assert (nothing.model, nothing.n_samples) == (None, 0)
    assert nothing.noisy_model is not None and nothing.fault() is None
    assert TrainedTwice(None, 0, 1.0).fault() == "model is missing"


def test_some_samples_are_surer_than_others(make_client: MakeClient) -> None:
    client = make_client(20)
    _, is_sure = sure_labels(client, client.module(with_head(5.0)), temperature=2.0, confidence=0.6)
    assert 0 < is_sure.sum() < 20
    pseudo = fedned(confidence=0.6).pseudo_labelled(client, with_head(5.0))
    assert torch.equal(pseudo.images, client.data.images[is_sure])
    with torch.no_grad():
        images = client.data.preprocessing.normalise(pseudo.images)
        assert torch.equal(pseudo.labels, client.module(with_head(5.0)).eval()(images).argmax(dim=1))


def test_as_published_one_model_goes_through_both_trainings(make_client: MakeClient) -> None:
    published = fedned(negative_distillation=False).train_extreme(make_client(20), model=with_head(5.0))
    assert published.model is not None and published.noisy_model is None
    assert published.n_samples == 20
    assert int(published.model["norm.num_batches_tracked"]) == 6  # three batches twice


def test_as_published_a_batch_without_a_sure_sample_moves_nothing(make_client: MakeClient) -> None:
    method = fedned(negative_distillation=False, confidence=0.99, weight_decay=0.1)
    published = method.train_extreme(make_client(20), model=START)
    plain = method.train(make_client(20), model=START)
    names = [name for name, _ in Tiny().named_parameters()]
    # Batch statistics train both, so that only the second training counts.
    assert all(torch.equal(published.judged[name], plain.judged[name]) for name in names)
