"""Many runs, some at a time, each in a process of its own and in its own folder: what is finished stays finished.

A run that fails does not stop the others, unless the first ones all fail for the same reason. Ctrl-C, or a kill of
any kind, loses no more than the round that each run is in; the same sweep again goes on there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from fedsir.data.directory import data_directory
from fedsir.data.source import DATASETS
from fedsir.engines.local import start, start_method
from fedsir.errors import ConfigError, FedsirError, RunFolderError
from fedsir.runs.config import RunConfig, Tree, parse_config
from fedsir.runs.devices import check_device
from fedsir.runs.progress import Silent
from fedsir.runs.run_folder import RunFolder
from fedsir.runs.runner import RunTarget, default_out, run_experiment

if TYPE_CHECKING:
    from fedsir.data.federation import FederatedData


@dataclass(frozen=True)
class Job:
    """A run to be made, and its folder."""

    config: RunConfig
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def result(self) -> dict[str, Any] | None:
        """Return the result of a finished run with these very settings, else None."""
        folder = RunFolder(self.folder)
        found = folder.result()
        if found is not None:
            folder.refuse_other(self.config)
        return found

    def share_done(self) -> float:
        """Return the share of the rounds that an earlier attempt has behind it; round 0 counts as one."""
        lines = RunFolder(self.folder).metrics()
        return (lines[-1]["round"] + 1) / (self.config.rounds + 1) if lines else 0.0


@dataclass
class Outcome:
    """How a sweep ended: a result by job name, or the reason why there is none."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


class SweepProgress(Protocol):
    """Told what happens to the jobs of a sweep."""

    def began(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]]) -> None: ...

    def started(self, job: Job) -> None: ...

    def round_done(self, job: Job, t: int, accuracy: float | None) -> None: ...

    def ended(self, job: Job, result: dict[str, Any] | None, failure: str | None) -> None: ...


def jobs_for(configs: Sequence[RunConfig], out: Path) -> list[Job]:
    """Return a job per settings, in the folder inside `out` that has such a run, else where `fedsir run` would put it.

    Equal settings share a job. A folder may have any name, and be from before a setting was introduced; of several
    with the same settings a finished one is taken, then that which `fedsir run` would use.
    """
    methods = {config.method.name for config in configs}
    folders: dict[str, list[Path]] = {}
    for path in sorted(out.glob("*/config.toml")):
        with contextlib.suppress(RunFolderError):  # not readable, so nobody's; a run that belongs there will say so
            if (stored := RunFolder(path.parent).config_of(methods)) is not None:
                folders.setdefault(stored.sha256, []).append(path.parent)
    by_sha256 = {config.sha256: config for config in configs}
    return [_job(config, out, folders.get(sha256, [])) for sha256, config in by_sha256.items()]


def _job(config: RunConfig, out: Path, there: Sequence[Path]) -> Job:
    usual = out / default_out(config).name
    finished = [path for path in there if (path / "result.json").exists()]
    candidates = finished or there
    return Job(config, usual if usual in candidates or not candidates else candidates[0])


def run_jobs(
    jobs: Sequence[Job],
    progress: SweepProgress,
    *,
    workers: int = 1,
    device: str = "cpu",
    data_dir: Path | None = None,
    download: bool = False,
) -> Outcome:
    """Run every job that is not finished, `workers` at a time; with fewer jobs than workers, each has several.

    Parameters
    ----------
    workers : processes that compute; no result depends on it
    """
    if workers < 1:
        raise ConfigError(f"workers: must be at least 1 (given: {workers})")
    check_device(device)
    # A finished run on the user's own data is looked at again, by `run_experiment`: they may have changed since.
    settled = [job for job in jobs if job.config.data.dataset in DATASETS]
    finished = {job.name: result for job in settled if (result := job.result()) is not None}
    outcome = Outcome(results=dict(finished))
    waiting = [job for job in jobs if job.name not in finished]
    progress.began(jobs, finished)
    if not waiting:
        return outcome
    n_at_once = min(workers, len(waiting))
    data_dir = data_directory(data_dir)  # a fork server's children do not see what the environment has become
    context = start_method(device)
    busy: dict[Connection, _JobProcess] = {}
    reasons: list[str] = []  # of failures, without the folders that they happened in
    try:
        while waiting or busy:
            while waiting and len(busy) < n_at_once:
                job = waiting.pop(0)
                target = RunTarget(job.folder, workers // n_at_once, device, data_dir, download)
                process = _JobProcess(context, job, target)
                busy[process.connection] = process
                progress.started(job)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                told = busy[ready].told()
                if told["what"] == "round":
                    progress.round_done(busy[ready].job, told["round"], told["accuracy"])
                    continue
                process = busy.pop(ready)
                process.stop()
                progress.ended(process.job, told.get("result"), told.get("failure"))
                if told["what"] == "result":
                    outcome.results[process.job.name] = told["result"]
                    continue
                outcome.failures[process.job.name] = reason = told["failure"]
                reasons.append(reason.replace(str(process.job.folder), ""))
                if len(outcome.results) == len(finished) and reasons.count(reasons[-1]) > 1:
                    if not finished:
                        raise FedsirError(f"No run worked, and two failed for the same reason: {reason}")
                    waiting.clear()  # what was finished before is still worth showing
    finally:
        for process in busy.values():
            process.stop()
    return outcome


class _JobProcess:
    """A process that makes one run and tells of it through a pipe."""

    def __init__(self, context: Any, job: Job, target: RunTarget) -> None:
        self.job = job
        self.connection, theirs = context.Pipe(duplex=False)
        # Plain values: a method in a file has a class that only the process which loaded it can name.
        self._process = context.Process(target=_make_run, args=(theirs, job.config.tree(), target))
        start(self._process)
        theirs.close()

    def told(self) -> dict[str, Any]:
        """Return the next message; where the process died without one, why."""
        try:
            message: dict[str, Any] = self.connection.recv()
        except (EOFError, OSError):
            self._process.join()
            code = self._process.exitcode
            why = "; too little memory?" if code is not None and code < 0 else ""
            return {"what": "failure", "failure": f"its process died (exit code {code}{why})."}
        return message

    def stop(self) -> None:
        """End the process, in the middle of a run if need be: its folder survives that."""
        self.connection.close()
        self._process.terminate()
        self._process.join(timeout=10)


class _Telling(Silent):
    """A run's progress, told through a pipe."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def started(self, config: RunConfig, data: FederatedData, earlier: list[dict[str, Any]]) -> None:
        del config, data
        if earlier:
            self.round_done(earlier[-1])

    def round_done(self, metrics: dict[str, Any]) -> None:
        self._connection.send({"what": "round", "round": metrics["round"], "accuracy": metrics.get("accuracy")})


def _make_run(connection: Connection, tree: Tree, target: RunTarget) -> None:
    _end_with_parent()
    try:
        target = replace(target, progress=_Telling(connection))
        connection.send({"what": "result", "result": dict(run_experiment(parse_config(tree), target))})
    except FedsirError as problem:
        connection.send({"what": "failure", "failure": " ".join(str(problem).splitlines())})
    except Exception as problem:  # a fault of fedsir's or of a method's: told like any other, with its traceback
        traceback.print_exc()
        what = " ".join(f"{type(problem).__name__}: {problem}".splitlines())
        connection.send({"what": "failure", "failure": f"{what} (a fault in the code: its traceback is above)"})


def _end_with_parent() -> None:
    """End this process when the sweep's is gone: else a killed sweep would leave runs that hold their folders."""
    parent = parent_process()
    assert parent is not None, "this is a child process"

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
