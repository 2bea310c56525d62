"""`fedsir.run`, `fedsir.simulate`: what the command line does, from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.errors import ConfigError
from fedsir.runs.config import tree_of
from fedsir.runs.recipes import RECIPE_OF_DATASET, RECIPE_OF_OWN_DATA, resolve

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData
    from fedsir.methods.base import AnyMethod
    from fedsir.models.initial import ModelFactory
    from fedsir.runs.result import RunResult
    from fedsir.simulation.simulation import Simulation, Step


def run(
    recipe: str | None = None,
    *,
    method: str | None = None,
    dataset: str | Path | None = None,
    rounds: int | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    workers: int = 1,
    device: str = "cpu",
    data_dir: str | Path | None = None,
    engine: str = "local",
) -> RunResult:
    """Run an experiment in a folder, or go on with it where it stopped.

    Parameters
    ----------
    recipe
        A recipe's name or a TOML file, or a data set's name; by default that of the data set.
    settings
        Any other settings by dotted key, e.g. ``{"data.alpha": 0.5, "method.relabel.every": 5}``. `model.name` may be
        ``"package.module:Class"`` here.
    out
        The run's folder; by default ``runs/NAME``, the same for the same settings.
    workers
        Worker processes. With more than one, call this under ``if __name__ == "__main__":``.
    engine
        "local", or "flower" for Flower's simulation; the result does not depend on it.
    """
    from fedsir.runs.runner import RunTarget, default_out, run_experiment

    named = {"method.name": method, "data.dataset": None if dataset is None else str(dataset)}
    tree = tree_of({**named, "rounds": rounds, "seed": seed, **(settings or {})})
    where = None if data_dir is None else Path(data_dir)
    config = resolve(recipe, tree, data_dir=where)
    folder = default_out(config) if out is None else Path(out)
    return run_experiment(config, RunTarget(folder, workers, device, where, engine=engine))


def simulate(
    data: FederatedData,
    method: str | AnyMethod | type[AnyMethod] = "fedsir",
    *,
    rounds: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    model: str | ModelFactory | None = None,
    recipe: str | None = None,
    workers: int = 1,
    device: str = "cpu",
    data_dir: str | Path | None = None,
    callbacks: Sequence[Callable[[Step], None]] = (),
    engine: str = "local",
) -> Simulation:
    """Return a simulation that takes a round per step; nothing is computed before the first one.

    Settings that are not given are those of the data set's recipe, as on the command line.

    Parameters
    ----------
    data
        From `FederatedData.load` or `FederatedData.from_arrays`.
    method
        A method's name, ``"file.py:Class"``, a class, or an object such as ``FedSIR(epochs=2)``.
    settings
        By dotted key: the method's (``"method.lr"``), and ``participation``, ``dropout``, ``evaluate_every``.
    model
        A model's name, or a function of (n_classes, in_channels) that returns a module with `features` and `head`.
    recipe
        A recipe's name or a TOML file instead of the data set's own.
    workers
        Worker processes; the result does not depend on it. With more than one, call this under
        ``if __name__ == "__main__":``, and take method and model from modules that can be imported.
    callbacks
        Functions of a step, called after each round.
    engine
        "local", or "flower" for Flower's simulation; the result does not depend on it.
    """
    from fedsir.data.directory import data_directory
    from fedsir.data.federation import FederatedData
    from fedsir.engines.choice import engine_opener
    from fedsir.engines.device_settings import prepared
    from fedsir.methods.base import Method
    from fedsir.methods.registry import method_class
    from fedsir.models.initial import initial_model, model_from_factory
    from fedsir.runs.devices import check_machine
    from fedsir.simulation.evaluation import Evaluator
    from fedsir.simulation.simulation import Simulation

    if not isinstance(data, FederatedData):
        raise ConfigError(f"data must be a FederatedData, such as FederatedData.load('digits'), not {data!r:.80}.")
    if callable(callbacks) or not all(callable(callback) for callback in callbacks):
        raise ConfigError("callbacks: give a list of functions that take a step.")
    check_machine(workers, device)
    open_engine = engine_opener(engine, workers)
    if isinstance(method, type) and issubclass(method, Method):
        method = method()
    is_object = isinstance(method, Method)
    for key in settings or {}:
        if key.startswith("data."):
            raise ConfigError(
                f"settings: {key!r} has no effect on data that are loaded; give it to FederatedData.load."
            )
        if is_object and key.startswith("method."):
            raise ConfigError(f"settings: {key!r} has no effect on a method's object; give it to its class.")
    named: dict[str, Any] = {
        "method.name": "fedavg" if is_object else method,  # an object brings its own settings
        "model.name": model if isinstance(model, str) else None,
        **({"model.weights": "none"} if isinstance(model, str) and not model.startswith("resnet18") else {}),
    }
    where = data_directory(None if data_dir is None else Path(data_dir))
    own = None if model is None or isinstance(model, str) else RECIPE_OF_OWN_DATA  # a network of the caller's own
    config = resolve(
        recipe or RECIPE_OF_DATASET.get(data.name, own),
        tree_of({**named, "rounds": rounds, "seed": seed, **(settings or {})}),
        data_dir=where,
        image_size=data.image_size,
    )
    chosen = method if isinstance(method, Method) else method_class(config.method.name)(config.method)
    if chosen.config.needs_public and data.public_images is None:
        raise ConfigError(
            f"{chosen.name} needs unlabelled images that everybody has: load the data with public='held-out', or with "
            "the name or path of other images."
        )
    with prepared(device):
        first = (
            initial_model(config.model, data, seed=seed, data_dir=where)
            if model is None or isinstance(model, str)
            else model_from_factory(model, data, seed=seed)
        )
    return Simulation(
        data,
        chosen,
        first,
        rounds=config.rounds,
        seed=seed,
        participation=config.participation,
        dropout=config.dropout,
        device=device,
        open_engine=open_engine,
        listeners=(Evaluator(data, config.evaluate_every), *callbacks),
    )
