"""Runs an experiment from settings to result in a folder, resuming where an earlier attempt stopped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsir.data.dealing import load_federation
from fedsir.data.directory import data_directory
from fedsir.data.noise_rate import noise_rate_text
from fedsir.data.source import DATASETS
from fedsir.engines.choice import EngineOpener, engine_opener
from fedsir.engines.device_settings import prepared
from fedsir.engines.shared_images import shared
from fedsir.errors import RunFolderError
from fedsir.methods import method_file
from fedsir.methods.registry import method_class
from fedsir.methods.reply_check import Form
from fedsir.models.initial import InitialModel, initial_model
from fedsir.runs import checkpoint
from fedsir.runs.devices import check_machine
from fedsir.runs.file_forms import DataFile
from fedsir.runs.progress import Silent
from fedsir.runs.provenance import provenance
from fedsir.runs.result import RunResult
from fedsir.runs.run_folder import RunFolder
from fedsir.runs.summary import write_summary
from fedsir.simulation.evaluation import Evaluator, describe_data
from fedsir.simulation.simulation import Simulation, Snapshot

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData
    from fedsir.methods.base import AnyMethod
    from fedsir.runs.config import RunConfig
    from fedsir.simulation.simulation import Step


@dataclass(frozen=True)
class RunTarget:
    """Where a run takes place; nothing here changes its result."""

    out: Path
    workers: int = 1
    device: str = "cpu"
    data_dir: Path | None = None
    download: bool = False
    progress: Silent = field(default_factory=Silent)
    engine: str | EngineOpener = "local"


def default_out(config: RunConfig) -> Path:
    """Return runs/NAME for these settings: the same settings have the same folder, so the same command resumes."""
    data = config.data
    words: tuple[str, ...]
    method = method_file.class_name(config.method.name).lower()
    if data.dataset in DATASETS:
        # As most runs have symmetric noise, or none, only other kinds are named.
        kind = () if data.noise in ("symmetric", "none") else (data.noise,)
        rate = f"n{noise_rate_text(data.noise_rate)}"
        words = (data.dataset, method, f"a{data.alpha:g}", *kind, rate, f"s{config.seed}")
    else:
        words = (Path(data.dataset).resolve().stem, method, f"s{config.seed}")
    return Path("runs") / ("-".join(words) + f"-{config.sha256[:8]}")


def run_experiment(config: RunConfig, target: RunTarget) -> RunResult:
    """Run (or go on with, or just report) an experiment; return its result."""
    check_machine(target.workers, target.device)
    open_engine = engine_opener(target.engine, target.workers)
    folder = RunFolder(target.out)
    with folder.opened(config):
        finished = folder.result()
        if finished is not None and config.data.dataset in DATASETS:
            return _reported_again(folder, finished, target)
        data = load_federation(config.data, seed=config.seed, data_dir=target.data_dir, download=target.download)
        description = describe_data(data)
        stored = folder.read_json("data.json", DataFile)
        if stored is not None and stored["sha256"] != description["sha256"]:
            raise RunFolderError(f"The data have changed since this run began in {folder.path}: choose another --out.")
        if finished is not None:  # with own data only now: they may have changed since
            return _reported_again(folder, finished, target)
        if target.engine == "local" and target.workers > 1:
            # Nobody keeps this process's own images, so there is one copy for all processes.
            data = replace(data, images=shared(data.images))
        return _run(config, target, open_engine, folder, data, description)


def _run(
    config: RunConfig,
    target: RunTarget,
    open_engine: EngineOpener,
    folder: RunFolder,
    data: FederatedData,
    description: dict[str, Any],
) -> RunResult:
    method = method_class(config.method.name)(config.method)
    method.check(data.counts())
    with prepared(target.device):
        model = initial_model(
            config.model, data, seed=config.seed, data_dir=data_directory(target.data_dir), download=target.download
        )
    folder.write_json("data.json", description)
    engine = target.engine if isinstance(target.engine, str) else "flower"
    folder.write_json(
        "provenance.json",
        provenance(weights=model.source, workers=target.workers, device=target.device, engine=engine),
    )
    begin_after = _checkpoint(config, folder, method, data, model)
    evaluator = Evaluator(data, config.evaluate_every)
    with Simulation(
        data,
        method,
        model,
        rounds=config.rounds,
        seed=config.seed,
        participation=config.participation,
        dropout=config.dropout,
        device=target.device,
        open_engine=open_engine,
        listeners=(evaluator, _Recorder(folder, config), target.progress),
        begin_after=begin_after,
        spill_folder=folder.path,  # on a disk; the system's place for temporary files may be memory
    ) as simulation:
        target.progress.started(config, data, folder.metrics())
        simulation.run()
        with prepared(target.device):
            result = RunResult(folder.path, write_summary(folder, config, simulation, evaluator))
    target.progress.finished(result, is_new=True)
    return result


@dataclass(frozen=True)
class _Recorder:
    """Puts every round into the run's folder: its metrics, then a checkpoint."""

    folder: RunFolder
    config: RunConfig

    def __call__(self, step: Step) -> None:
        self.folder.append_metrics(step.metrics)
        content = checkpoint.to_bytes(step.simulation.snapshot(), self.config.sha256)
        self.folder.write_checkpoint(step.round, content)


def _checkpoint(
    config: RunConfig, folder: RunFolder, method: AnyMethod, data: FederatedData, model: InitialModel
) -> Snapshot | None:
    """Return where an earlier attempt stopped, None if it never came to round 0; forget what came after it."""
    t, content = folder.checkpoint_round(), folder.read_checkpoint()
    if content is None:
        folder.drop_metrics_after(-1)
        return None
    form = Form.of(model.weights, classes=data.n_classes, features=model.n_features)
    try:
        found = checkpoint.from_bytes(content, method.State, form, data.size_by_client, config.sha256)
        if found.round != t or t > config.rounds:
            raise RunFolderError(f"the checkpoint is damaged: it is not of round {t}.")
    except RunFolderError as problem:
        raise RunFolderError(f"{folder.path}: {problem}") from problem
    folder.drop_metrics_after(found.round)
    folder.drop_older_checkpoints()
    return found


def _reported_again(folder: RunFolder, result: dict[str, Any], target: RunTarget) -> RunResult:
    """Return a finished run's result once more, if its model is still the one it ended with."""
    found = RunResult(folder.path, result)
    found.stored_weights()
    target.progress.finished(found, is_new=False)
    return found
