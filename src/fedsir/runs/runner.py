"""Runs an experiment from settings to result, round by round, resuming where an earlier attempt stopped."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors.torch
import torch

from fedsir.data.dealing import load_federation
from fedsir.data.directory import data_directory
from fedsir.data.source import DATASETS
from fedsir.engines.client_host import HostSpec
from fedsir.engines.client_store import ClientStore
from fedsir.engines.federation import EngineFederation
from fedsir.engines.local import local_engine
from fedsir.engines.wire import decode
from fedsir.errors import ConfigError, RunFolderError
from fedsir.methods import method_file
from fedsir.methods.registry import method_class
from fedsir.models.build import exported_weights
from fedsir.models.weights import weights_sha256
from fedsir.runs.checkpoint import Checkpoint
from fedsir.runs.devices import check_device
from fedsir.runs.ending import Ending
from fedsir.runs.initial_model import initial_model
from fedsir.runs.progress import Progress, Silent
from fedsir.runs.provenance import provenance
from fedsir.runs.run_folder import RunFolder
from fedsir.simulation.evaluation import Evaluator, describe_data

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fedsir.data.federation import FederatedData
    from fedsir.methods.base import Method, ServerState, Weights
    from fedsir.runs.config import RunConfig


@dataclass(frozen=True)
class Where:
    """Where a run takes place; nothing here changes its result."""

    out: Path
    workers: int = 1
    device: str = "cpu"
    data_dir: Path | None = None
    download: bool = False
    progress: Progress = field(default_factory=Silent)


def default_out(config: RunConfig) -> Path:
    """Return runs/NAME for these settings: the same settings have the same folder, so the same command resumes."""
    data = config.data
    words: tuple[str, ...]
    method = method_file.class_name(config.method.name).lower()
    if data.dataset in DATASETS:
        words = (data.dataset, method, f"a{data.alpha:g}", f"n{data.noise_rate:g}", f"s{config.seed}")
    else:
        words = (Path(data.dataset).resolve().stem, method, f"s{config.seed}")
    return Path("runs") / ("-".join(words) + f"-{config.sha256[:8]}")


def run_experiment(config: RunConfig, where: Where) -> dict[str, Any]:
    """Run (or go on with, or just report) an experiment; return its result as JSON values."""
    if where.workers < 1:
        raise ConfigError(f"workers: must be at least 1 (given: {where.workers})")
    check_device(where.device)
    folder = RunFolder(where.out)
    with folder.opened(config):
        finished = folder.result()
        if finished is not None and config.data.dataset in DATASETS:
            return _report_again(folder, finished, where)
        data = load_federation(config.data, seed=config.seed, data_dir=where.data_dir, download=where.download)
        description = describe_data(data)
        _check_data(folder, description)
        if finished is not None:  # with own data only now: they may have changed since
            return _report_again(folder, finished, where)
        return _Run(config, where, folder, data, description).complete()


class _Run:
    """One run in progress."""

    def __init__(
        self,
        config: RunConfig,
        where: Where,
        folder: RunFolder,
        data: FederatedData,
        description: dict[str, Any],
    ) -> None:
        self.config, self.where, self.folder, self.data = config, where, folder, data
        torch.set_num_threads(1)  # sums must not depend on how many cores this machine has
        self.method_class: type[Method] = method_class(config.method.name)
        self.method = self.method_class(config.method)
        self.method.check(data.counts())
        self.first = initial_model(config, data, data_directory(where.data_dir), download=where.download)
        self.evaluator = Evaluator(data)
        self._predicted: tuple[ServerState, NDArray[np.int64]] | None = None
        self.folder.write_json("data.json", description)
        self.folder.write_json(
            "provenance.json", provenance(weights=self.first.source, workers=where.workers, device=where.device)
        )

    def complete(self) -> dict[str, Any]:
        """Run all rounds that are still missing, then write the result."""
        resumed = self._resume()
        store = ClientStore.of(self.data)
        with local_engine(self._host_spec(store), self.where.workers) as engine:
            self.federation = EngineFederation(
                engine,
                self.data.clients,
                seed=self.config.seed,
                participation=self.config.participation,
                dropout=self.config.dropout,
                initial_model=self.first.weights,
                client_states=resumed.client_states if resumed else None,
                spill_folder=self.folder.path,  # on a disk; the system's place for temporary files may be memory
            )
            state, seconds = self._rounds(resumed)
            return self._finish(state, seconds)

    def _rounds(self, resumed: Checkpoint | None) -> tuple[ServerState, float]:
        began = time.perf_counter() - (resumed.seconds if resumed else 0.0)
        first = resumed.round + 1 if resumed else 0
        self.where.progress.started(self.config, self.data, self.folder.metrics())
        state = resumed.state if resumed else None
        for t in range(first, self.config.rounds + 1):
            self.federation.begin_round(t)
            round_began = time.perf_counter()
            if state is None:
                state = self.method.start(self.federation, self.first.weights)
            else:
                state = self.method.round(t, state, self.federation)
            self.federation.end_round()
            metrics = self._measure(t, state, time.perf_counter() - round_began)
            self.folder.append_metrics(metrics)
            seconds = time.perf_counter() - began
            checkpoint = Checkpoint(t, state, self.federation.client_states, seconds, self.config.sha256)
            self.folder.write_checkpoint(t, checkpoint.to_bytes())
            self.where.progress.round_done(metrics)
        assert state is not None, "there is at least round 0"
        return state, time.perf_counter() - began

    def _resume(self) -> Checkpoint | None:
        content = self.folder.read_checkpoint()
        if content is None:
            self.folder.drop_metrics_after(-1)
            return None
        try:
            checkpoint = Checkpoint.from_bytes(content, self.method_class, self.config.sha256)
        except RunFolderError as problem:
            raise RunFolderError(f"{self.folder.path}: {problem}") from problem
        self.folder.drop_metrics_after(checkpoint.round)
        self.folder.drop_older_checkpoints()
        return checkpoint

    def _measure(self, t: int, state: ServerState, seconds: float) -> dict[str, Any]:
        """Return round t's line of metrics.jsonl."""
        log = self.federation.log
        line: dict[str, Any] = {"round": t}
        is_due = t % self.config.evaluate_every == 0 or t == self.config.rounds
        if is_due:
            line["accuracy"] = self.evaluator.accuracy(self._predict(state)).accuracy
        corrected = self.evaluator.corrected_labels(self.federation.client_states)
        return line | {
            "noise_after": self.evaluator.noise_after(corrected),
            **log.values,
            "seconds": seconds,
            "participants": list(self.federation.participants),
            "failures": self._in_order(log.failures),
            "bytes_up": sum(log.bytes_up.values()),
            "bytes_down": sum(log.bytes_down.values()),
            "bytes_up_by_client": self._in_order(log.bytes_up),
            "bytes_down_by_client": self._in_order(log.bytes_down),
            "seconds_by_client": self._in_order(log.seconds),
        }

    def _in_order(self, by_client: dict[str, Any]) -> dict[str, Any]:
        """Return values by client in federation order, whatever the order in which they came."""
        return {client: by_client[client] for client in self.data.clients if client in by_client}

    def _predict(self, state: ServerState) -> NDArray[np.int64]:
        """Return the class of each test image, (n_test,); where clients have models of their own, (clients, n_test).

        Asked twice for one state, it computes once.
        """
        if self._predicted is None or self._predicted[0] is not state:
            n_test = len(self.data.test_labels)
            if self.method.is_personal:
                predicted = np.stack([self.federation.predict(m, n_test) for m in self._personal(state).values()])
            else:
                predicted = self.federation.predict(state.model, n_test)
            self._predicted = (state, predicted)
        return self._predicted[1]

    def _personal(self, state: ServerState) -> dict[str, Weights]:
        """Return every client's own model; a client that has not trained yet has the common one."""
        states = self.federation.client_states
        own = {client: decode(states[client]) for client in self.data.clients if client in states}
        return {client: own.get(client, {}).get("model", state.model) for client in self.data.clients}

    def _exported(self, state: ServerState) -> Weights:
        """Return what model.safetensors holds: the model in the stock layout, or CLIENT/NAME of every client's own."""
        if not self.method.is_personal:
            return exported_weights(state.model, self.first.module, self.first.stock)
        return {
            f"{client}/{name}": tensor.clone()  # safetensors refuses clients that still share the common model
            for client, model in self._personal(state).items()
            for name, tensor in exported_weights(model, self.first.module, self.first.stock).items()
        }

    def _finish(self, state: ServerState, seconds: float) -> dict[str, Any]:
        ending = Ending(
            config=self.config,
            data=self.data,
            state=state,
            evaluator=self.evaluator,
            predicted=self._predict(state),
            corrected=self.evaluator.corrected_labels(self.federation.client_states),
            exported=self._exported(state),
            seconds=seconds,
        )
        result = ending.write(self.folder, self.method_class.name)
        self.where.progress.finished(result)
        return result

    def _host_spec(self, store: ClientStore) -> HostSpec:
        return HostSpec(
            method=self.config.method.name,
            method_config=self.config.method,
            model=self.config.model,
            n_classes=self.data.n_classes,
            in_channels=self.data.channels,
            seed=self.config.seed,
            device=self.where.device,
            store=store,
        )


def _check_data(folder: RunFolder, description: dict[str, Any]) -> None:
    stored = folder.read_json("data.json", "sha256")
    if stored is not None and stored["sha256"] != description["sha256"]:
        raise RunFolderError(f"The data have changed since this run began in {folder.path}: choose another --out.")


def _report_again(folder: RunFolder, result: dict[str, Any], where: Where) -> dict[str, Any]:
    """Return a finished run's result once more."""
    _check_model_file(folder, result)
    where.progress.finished(result)
    return result


def _check_model_file(folder: RunFolder, result: dict[str, Any]) -> None:
    """A finished run is only reported if its model is still the one it ended with."""
    path = folder.path / "model.safetensors"
    try:
        intact = weights_sha256(safetensors.torch.load(path.read_bytes())) == result["model_sha256"]
    except (OSError, safetensors.SafetensorError):
        intact = False
    if not intact:
        raise RunFolderError(
            f"{path} is missing or damaged: remove {folder.path} and run the command again, or restore the file."
        )
