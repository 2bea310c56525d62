"""A federation held in the hand: step, stop, go on, look inside, and leave the caller's process as it was."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_methods import Disturbing, Editing, Stumbling, WithRMSprop

import fedsir
from fedsir.data.federation import FederatedData
from fedsir.engines.device_settings import prepared
from fedsir.errors import ConfigError, MethodError
from fedsir.methods.base import AnyMethod
from fedsir.methods.fedavg import FedAvg
from fedsir.models.initial import model_from_factory
from fedsir.simulation.evaluation import Evaluator
from fedsir.simulation.simulation import Simulation, Step
from tiny_network import Tiny

DATA: dict[str, Any] = {"n_train": 120, "n_test": 50, "n_clients": 3, "partition": "iid", "noise_rate": 0.8}


def tiny(n_classes: int, in_channels: int) -> Tiny:
    return Tiny()


@pytest.fixture(scope="module")
def data() -> FederatedData:
    return FederatedData.load("digits", seed=0, noisy_clients=["1"], **DATA)


def simulate(data: FederatedData, method: str | AnyMethod = "fedavg", **more: Any) -> Simulation:
    return fedsir.simulate(data, method, **{"rounds": 3, "model": tiny, **more})


def same(one: Simulation, other: Simulation) -> bool:
    return all(torch.equal(tensor, other.state.model[name]) for name, tensor in one.state.model.items())


def timeless(simulation: Simulation) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in simulation.metrics]


# ---------------------------------------------------------------- the loop


def test_a_step_is_a_round_and_knows_what_there_is_to_see(data: FederatedData) -> None:
    seen: list[Step] = []
    sim = simulate(data, "fedsir", callbacks=[seen.append, lambda step: step.metrics.update(mine=step.round)])
    with pytest.raises(MethodError, match="has not taken a step yet"):
        _ = sim.state
    steps = list(sim)
    assert steps == seen
    assert [step.round for step in steps] == sim.metrics["round"] == sim.metrics["mine"] == [0, 1, 2, 3]
    assert [step.accuracy for step in steps] == sim.metrics["accuracy"]
    last = steps[-1]
    assert last.split is sim.split is not None
    assert set(last.split.clean) | set(last.split.noisy) == {"0", "1", "2"}
    predicted = sim.predict(data.images[data.test_rows])
    assert (predicted == data.test_labels).mean() == last.accuracy
    with torch.no_grad():
        images = data.preprocessing.normalise(torch.from_numpy(data.images[data.test_rows]))
        assert (last.model(images).argmax(dim=1).numpy() == predicted).all()
    corrected = sim.corrected_labels()
    assert {client: len(labels) for client, labels in corrected.items()} == data.size_by_client
    changed = [k for k, labels in corrected.items() if (labels != data.given_labels[data.rows(k)]).any()]
    assert set(changed) <= set(last.split.noisy)
    assert sim.metrics.to_frame().shape[0] == len(sim.metrics) == 4
    with pytest.raises(StopIteration):
        next(sim)


@pytest.mark.parametrize("workers", [1, 2])
def test_stopped_closed_and_gone_on_with_it_ends_in_the_same_model(workers: int, data: FederatedData) -> None:
    straight = simulate(data, Stumbling(lr=0.01)).run()
    sim = simulate(data, Stumbling(lr=0.01), workers=workers)
    for step in sim:
        if step.round == 1:
            break
    assert len(sim.metrics) == 2
    sim.close()
    assert next(sim).round == 2  # it opens again, and clients remember
    with sim:
        sim.run()
    assert same(sim, straight)
    assert timeless(sim) == timeless(straight)
    assert sim.metrics["visits"][1:] == [[t] * 3 for t in (1, 2, 3)]


def test_another_simulation_goes_on_from_a_snapshot(data: FederatedData) -> None:
    model = model_from_factory(tiny, data, seed=0)

    def simulation(**more: Any) -> Simulation:
        return Simulation(data, Stumbling(lr=0.01), model, rounds=3, listeners=[Evaluator(data)], **more)

    straight, first = simulation().run(), simulation()
    next(first), next(first)
    second = simulation(begin_after=first.snapshot())
    assert [step.round for step in second] == [2, 3]
    assert same(second, straight)
    assert timeless(second) == timeless(straight)[2:]
    assert second.seconds > first.seconds > 0


def test_a_step_that_was_interrupted_can_be_taken_again(data: FederatedData, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = simulate(data, Stumbling(lr=0.01)).run()
    sim = simulate(data, Stumbling(lr=0.01))
    monkeypatch.setattr(Stumbling, "fails_in", 2)
    with pytest.raises(KeyboardInterrupt):
        sim.run()
    assert (len(sim.metrics), sim.snapshot().round) == (2, 1)
    monkeypatch.setattr(Stumbling, "fails_in", None)
    assert same(sim.run(), straight)
    assert timeless(sim) == timeless(straight)  # no client counted the round twice


def test_a_callback_that_fails_loses_no_round(data: FederatedData) -> None:
    def stop(step: Step) -> None:
        if step.round == 1 and len(calls) == 1:
            calls.append(step)
            raise KeyError("mine")
        calls.append(step)

    calls: list[Step] = []
    sim = simulate(data, callbacks=[stop])
    with pytest.raises(KeyError, match="mine"):
        sim.run()
    assert same(sim.run(), simulate(data).run())
    assert sim.metrics["round"] == [0, 1, 2, 3]


# ---------------------------------------------------------------- what a user brings


@pytest.mark.parametrize("workers", [1, 2])
def test_a_method_that_edits_its_data_in_place_changes_neither_truth_nor_data(
    workers: int, data: FederatedData
) -> None:
    before = data.images.copy(), data.given_labels.copy(), np.asarray(data.truth.true_labels).copy()
    sim = simulate(data, Editing(lr=0.01), workers=workers).run()
    sim.close()
    after = data.images, data.given_labels, np.asarray(data.truth.true_labels)
    assert all((one == other).all() for one, other in zip(before, after, strict=True))
    assert (sim.corrected_labels()["1"] == data.given_labels[data.rows("1")]).all()
    assert same(sim, simulate(data, Editing(lr=0.01)).run())


def test_every_optimiser_trains_otherwise(data: FederatedData) -> None:
    kinds: list[AnyMethod] = [FedAvg(lr=0.01, batch_size=8, optimizer=name) for name in ("adam", "adamw", "sgd")]
    kinds += [FedAvg(lr=0.01, batch_size=8, optimizer="sgd", momentum=0.0), WithRMSprop(lr=0.01, batch_size=8)]
    models = [simulate(data, method, rounds=1).run().state.model["head.weight"] for method in kinds]
    assert len({tuple(model.flatten().tolist()) for model in models}) == len(kinds)
    assert torch.equal(
        models[0], simulate(data, FedAvg(lr=0.01, batch_size=8), rounds=1).run().state.model["head.weight"]
    )


def test_an_own_model_is_drawn_from_the_seed(data: FederatedData) -> None:
    def fresh(n_classes: int, in_channels: int) -> Tiny:
        module = Tiny()
        torch.nn.init.normal_(module.head.weight)
        return module

    first, again, other = (
        simulate(data, model=fresh, rounds=1, seed=seed).run().model().state_dict()["head.weight"] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.equal(first, other)


class Forgetful(Tiny):
    """A network with dropout, which draws from torch's global generator."""

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(super().features(x), training=self.training)


def test_a_model_with_dropout_is_the_same_with_any_workers_and_in_pieces(data: FederatedData) -> None:
    def run(**more: Any) -> Simulation:
        return simulate(data, model=lambda n_classes, in_channels: Forgetful(), **more)

    straight, pieces = run().run(), run(workers=2)
    for _ in pieces:
        torch.rand(7)  # what the caller draws in between does not matter
        pieces.close()
    assert same(straight, pieces)
    assert not same(straight, simulate(data).run())


def test_an_own_model_needs_features_and_a_head(data: FederatedData) -> None:
    with pytest.raises(ConfigError, match="features"):
        simulate(data, model=lambda n_classes, in_channels: torch.nn.Flatten())


def test_personal_models_predict_by_client(data: FederatedData) -> None:
    with pytest.raises(ConfigError, match="needs unlabelled images"):
        simulate(data, "rhfl")
    shared = FederatedData.load("digits", seed=0, public="held-out", **DATA)
    settings = {"method.pretrain_epochs": 1, "method.public_batch_size": 8, "method.lr": 0.01}
    sim = simulate(shared, "rhfl", rounds=1, settings=settings).run()
    with pytest.raises(MethodError, match="every client has a model of its own: name a client"):
        sim.model()
    images = shared.images[shared.test_rows]
    predicted = np.stack([sim.predict(images, client=client) for client in shared.clients])
    assert (predicted == sim.test_predictions()).all()
    assert (predicted[0] != predicted[1]).any()
    assert (predicted == shared.test_labels).mean() == pytest.approx(sim.metrics["accuracy"][-1])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workers": 0}, "workers: must be a whole number of at least 1"),
        ({"workers": 1.5}, "workers: must be a whole number"),
        ({"callbacks": print}, "callbacks: give a list of functions"),
        ({"callbacks": [3]}, "callbacks: give a list of functions"),
        ({"settings": {"data.alpha": 1}}, "'data.alpha' has no effect on data that are loaded"),
        ({"method": FedAvg(), "settings": {"method.lr": 1}}, "'method.lr' has no effect on a method's object"),
        ({"model": torch.nn.Linear(1, 1)}, "cannot be called with n_classes"),
        ({"settings": {"method.epocs": 3}}, "Did you mean 'epochs'"),
        ({"method": "fedsr"}, "Did you mean 'fedsir'"),
        ({"rounds": 0}, "rounds: must be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_is_one_line(wrong: dict[str, Any], message: str, data: FederatedData) -> None:
    with pytest.raises(ConfigError, match=message):
        simulate(data, **wrong)


def test_a_name_is_no_data_and_a_class_is_a_method(data: FederatedData) -> None:
    with pytest.raises(ConfigError, match=r"FederatedData\.load\('digits'\), not 'digits'"):
        simulate("digits")  # type: ignore[arg-type]
    sim = simulate(data, FedAvg, rounds=1)
    assert repr(sim) == f"<Simulation of fedavg on {data.name}: 0 of 2 steps taken>"
    assert (
        repr(data)
        == f"<FederatedData {data.name}: {data.n_clients} clients, {len(data.given_labels)} images of 8×8, 10 classes>"
    )


# ---------------------------------------------------------------- the caller's process


@pytest.fixture
def _untouched() -> Iterator[None]:
    """Check that torch's threads and defaults, and all global generators, are as they were."""

    def seen() -> list[Any]:
        states = [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]  # noqa: NPY002
        return [torch.get_num_threads(), torch.get_default_dtype(), *states]

    with prepared("cpu"):
        torch.set_num_threads(2)
        torch.set_default_dtype(torch.float64)
        before = seen()
        yield
        after = seen()
    assert after == before


@pytest.mark.usefixtures("_untouched")
def test_a_simulation_leaves_the_process_as_it_was(data: FederatedData) -> None:
    sim = simulate(data, "fedsir", model="small_cnn", rounds=1).run()
    sim.predict(data.images[data.test_rows])
    sim.model()
    simulate(data, rounds=1).run()  # a model from a function draws from the global generator


@pytest.mark.usefixtures("_untouched")
def test_even_when_a_method_meddles_and_fails(data: FederatedData) -> None:
    with pytest.raises(MethodError, match=r"Round 2: .*own_methods\.py, line \d+: ValueError: enough"):
        simulate(data, Disturbing()).run()


@pytest.mark.usefixtures("_untouched")
def test_a_run_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    settings = {f"data.{key}": value for key, value in DATA.items()}
    fedsir.run("digits", method="fedavg", rounds=1, settings=settings, out=tmp_path / "run").model()
    features, labels = np.random.default_rng(0).random((60, 8)), np.arange(60) % 3
    fedsir.identify(features, labels, np.arange(60) // 20)
    with pytest.raises(MethodError, match="diverged"):
        fedsir.run("digits", method="fedavg", settings=settings | {"method.lr": 1e30}, out=tmp_path / "bad")
