"""Sweeps: every run is made once, in its own process; one that fails or dies does not stop the others."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from fedsir.errors import ConfigError, FedsirError, RunFolderError
from fedsir.runs import progress as run_progress
from fedsir.runs.config import RunConfig
from fedsir.runs.recipes import resolve
from fedsir.runs.runner import RunTarget, run_experiment
from fedsir.sweeps.clock import SweepClock
from fedsir.sweeps.estimate import estimate_jobs, time_in_all
from fedsir.sweeps.progress import SweepLines, SweepTable
from fedsir.sweeps.sweep import Job, jobs_for, run_jobs

LINE = {"seconds": 1.0, "failures": {}, "bytes_up": 0, "bytes_down": 0}
DATA = {"n_train": 60, "n_test": 20, "n_clients": 3}


def tiny(seed: int = 0, rounds: int = 2, **method: Any) -> RunConfig:
    return resolve("digits", {"seed": seed, "rounds": rounds, "data": DATA, "method": {"name": "fedavg", **method}})


class Diary:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def began(self, jobs: Sequence[Job], finished: Mapping[str, dict[str, Any]]) -> None:
        self.lines.append(("began", len(jobs), len(finished)))

    def started(self, job: Job) -> None:
        self.lines.append(("started", job.name))

    def round_done(self, job: Job, t: int, accuracy: float | None) -> None:
        self.lines.append(("round", job.name, t))

    def ended(self, job: Job, result: dict[str, Any] | None, failure: str | None) -> None:
        self.lines.append(("ended", job.name, failure))


OWN_METHOD = """
import os
from fedsir.methods.base import client_task
from fedsir.methods.fedavg import FedAvg

class Mortal(FedAvg):
    name = "mortal"
    def start(self, fed, model):
        os._exit(3)
"""


def test_runs_are_those_of_fedsir_run_and_are_not_made_twice(tmp_path: Path) -> None:
    jobs = jobs_for([tiny(0), tiny(1), tiny(2)], tmp_path / "sweep")
    first, again = Diary(), Diary()
    outcome = run_jobs(jobs, first, workers=2)
    assert outcome.failures == {}
    alone = run_experiment(tiny(1), RunTarget(tmp_path / "alone"))
    assert outcome.results[jobs[1].name]["model_sha256"] == alone["model_sha256"]
    assert first.lines[0] == ("began", 3, 0)
    assert [line for line in first.lines if line[:2] == ("round", jobs[0].name)] == [
        ("round", jobs[0].name, t) for t in (0, 1, 2)
    ]
    assert [line[2] for line in first.lines if line[0] == "ended"] == [None, None, None]
    stamps = [(job.folder / "result.json").stat().st_mtime_ns for job in jobs]
    assert run_jobs(jobs, again, workers=1).results.keys() == outcome.results.keys()
    assert again.lines == [("began", 3, 3)]
    assert [(job.folder / "result.json").stat().st_mtime_ns for job in jobs] == stamps


def test_a_run_that_fails_or_dies_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "mortal.py").write_text(OWN_METHOD)
    dies = resolve("digits", {"data": DATA, "method": {"name": f"{tmp_path / 'mortal.py'}:Mortal"}})
    fails = resolve("digits", {"rounds": 2, "data": DATA | {"n_test": 10**6}, "method": {"name": "fedavg"}})
    jobs = jobs_for([dies, fails, tiny(0)], tmp_path / "sweep")
    diary = Diary()
    outcome = run_jobs(jobs, diary, workers=1)
    assert list(outcome.results) == [jobs[2].name]
    assert "died (exit code 3" in outcome.failures[jobs[0].name]
    assert "n_test" in outcome.failures[jobs[1].name]
    assert [line[1] for line in diary.lines if line[0] == "ended"] == [job.name for job in jobs]


def test_one_run_gets_all_workers(tmp_path: Path) -> None:
    (job,) = jobs_for([tiny(5)], tmp_path)
    run_jobs([job], Diary(), workers=2)
    assert '"workers": 2' in (job.folder / "provenance.json").read_text()


def test_another_runs_folder_is_refused(tmp_path: Path) -> None:
    (job,) = jobs_for([tiny(0)], tmp_path)
    run_experiment(tiny(1), RunTarget(job.folder))
    with pytest.raises(RunFolderError, match="seed is 1 there, 0 now"):
        run_jobs([job], Diary(), workers=1)
    with pytest.raises(ConfigError, match="workers"):
        run_jobs([job], Diary(), workers=0)


def test_a_run_is_found_under_any_name_and_without_settings_that_came_later(tmp_path: Path) -> None:
    run_experiment(tiny(0), RunTarget(tmp_path / "mine"))
    settings = tmp_path / "mine" / "config.toml"
    older = [line for line in settings.read_text().splitlines() if not line.startswith("dropout")]
    assert len(older) == len(settings.read_text().splitlines()) - 1
    settings.write_text("\n".join(older))
    found, other = jobs_for([tiny(0), tiny(1)], tmp_path)
    assert found.folder == tmp_path / "mine" and found.result() is not None
    assert other.folder.name.startswith("digits-fedavg") and other.result() is None


def test_looking_for_runs_loads_no_code_that_was_not_named(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("raise RuntimeError('loaded')\n")
    (tmp_path / "runs" / "own").mkdir(parents=True)
    (tmp_path / "runs" / "own" / "config.toml").write_text(f'[method]\nname = "{tmp_path / "own.py"}:Own"\n')
    (job,) = jobs_for([tiny(0)], tmp_path / "runs")
    assert job.folder.name != "own"


def test_estimates_know_what_is_done(tmp_path: Path) -> None:
    configs = [tiny(0, rounds=3), tiny(1, rounds=3), tiny(2, rounds=3)]
    finished, begun, untouched = jobs_for(configs, tmp_path)
    run_experiment(configs[0], RunTarget(finished.folder))
    begun.folder.mkdir()
    (begun.folder / "metrics.jsonl").write_text("".join(f"{json.dumps(LINE | {'round': t})}\n" for t in (0, 1)))
    estimates = estimate_jobs([finished, begun, untouched])
    whole = estimates[untouched.name]
    assert estimates[finished.name] is None
    assert whole is not None and whole > 0
    assert estimates[begun.name] == pytest.approx(whole / 2)  # rounds 0 and 1 of 0 to 3


def test_the_clock_goes_by_runs_of_the_same_method(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 0.0
    monkeypatch.setattr(run_progress.time, "monotonic", lambda: now)
    slow = [tiny(seed, rounds=3, name="fedprox") for seed in (0, 1)]
    jobs = jobs_for([tiny(0, rounds=3), tiny(1, rounds=3), *slow, tiny(rounds=3, name="fedlsr")], tmp_path)
    clock = SweepClock(jobs, {}, workers=1)
    assert clock.seconds_left() is None
    clock.started(jobs[0])
    now = 4.0
    clock.round_done(jobs[0], 0)
    assert clock.seconds_left() is None  # round 0 says nothing about the others
    now = 10.0
    clock.round_done(jobs[0], 1)
    assert clock.seconds_left() == pytest.approx(2 * 6 + 4 * (4 + 3 * 6))
    now = 22.0
    clock.round_done(jobs[0], 3)
    clock.ended(jobs[0])
    clock.started(jobs[2])
    now = 62.0
    clock.round_done(jobs[2], 0)  # a method with a long round 0: it is not taken for the pace of the rest
    assert clock.seconds_left() == pytest.approx(4 * 22)
    now = 72.0
    clock.round_done(jobs[2], 1)
    # The last is of a method not seen yet: the mean of 22 s, seen whole, and of 40 + 3 * 10 s, a third of it seen.
    assert clock.seconds_left() == pytest.approx(2 * 10 + 22 + 70 + (22 + 70 / 3) / (1 + 1 / 3))
    assert SweepClock(jobs, {}, workers=2).seconds_left() is None
    assert SweepClock(jobs, {job.name: {} for job in jobs}, workers=2).seconds_left() == 0


def test_a_resumed_run_counts_only_what_is_done_now(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = 0.0
    monkeypatch.setattr(run_progress.time, "monotonic", lambda: now)
    (job,) = jobs_for([tiny(rounds=9)], tmp_path)
    clock = SweepClock([job], {}, workers=1)
    clock.started(job)
    now = 5.0  # loading
    clock.round_done(job, 4)  # told at once: an earlier attempt came to round 4
    assert clock.seconds_left() is None
    now = 7.0
    clock.round_done(job, 5)
    assert clock.seconds_left() == pytest.approx(4 * 2)


@pytest.mark.parametrize("kind", [SweepLines, SweepTable])
def test_what_a_person_sees(kind: type[SweepLines], tmp_path: Path) -> None:
    jobs = jobs_for([tiny(seed) for seed in range(4)], tmp_path)
    console = Console(width=200, record=True, force_terminal=False, quiet=False, file=(tmp_path / "log").open("w"))
    progress = kind(console, 1)
    progress.began(jobs, {jobs[0].name: {"accuracy": 0.5}})
    for job in jobs[1:]:
        progress.started(job)
        progress.round_done(job, 0, None)
    progress.ended(jobs[1], {"accuracy": 0.25, "seconds": 100.0}, None)
    progress.ended(jobs[2], None, "no [clean] client")
    progress.ended(jobs[3], None, "no [clean] client")
    progress.close()
    text = console.export_text()
    assert "4 runs, 1 finished before" in text
    assert f"2/4 {jobs[1].name}: 25.0%, 2 min;" in text
    assert f"3/4 {jobs[2].name}: failed: no [clean] client" in text
    assert f"4/4 {jobs[3].name}: failed for the same reason" in text


BROKEN = """
from fedsir.methods.fedavg import FedAvg

class Broken(FedAvg):
    name = "broken"
    def start(self, fed, model):
        return {}["no such key"]
"""


def test_a_fault_in_a_method_is_told_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    broken = resolve("digits", {"data": DATA, "method": {"name": f"{tmp_path / 'broken.py'}:Broken"}})
    (job,) = jobs_for([broken], tmp_path / "sweep")
    outcome = run_jobs([job], Diary())
    where = f"{tmp_path / 'broken.py'}, line 7"
    assert outcome.failures == {job.name: f"Round 0: {where}: KeyError: 'no such key'."}


def test_two_failures_for_one_reason_in_two_folders_are_enough(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    jobs = [Job(tiny(seed), tmp_path / "file" / f"run-{seed}") for seed in range(4)]
    diary = Diary()
    with pytest.raises(FedsirError, match="No run worked, and two failed for the same reason"):
        run_jobs(jobs, diary)
    assert sum(line[0] == "ended" for line in diary.lines) == 2


def test_a_device_that_is_none_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tpu"):
        run_jobs(jobs_for([tiny(0)], tmp_path), Diary(), device="tpu")


def test_of_several_folders_with_the_same_settings_the_finished_one_is_taken(tmp_path: Path) -> None:
    run_experiment(tiny(0), RunTarget(tmp_path / "m"))
    shutil.copytree(tmp_path / "m", tmp_path / "zz")
    shutil.copytree(tmp_path / "m", tmp_path / "aa")
    for name in ("aa", "zz"):
        (tmp_path / name / "result.json").unlink()
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.toml").write_bytes(b"\xff")  # nobody's
    (job,) = jobs_for([tiny(0)], tmp_path)
    result = job.result()
    assert job.folder == tmp_path / "m" and result is not None
    assert result["run_dir"] == str(tmp_path / "m")


def test_runs_on_own_data_that_have_changed_are_not_taken_as_finished(tmp_path: Path) -> None:
    def write(n_bright: int) -> None:
        images = np.zeros((40, 8, 8), np.uint8)
        images[:n_bright] = 200
        np.savez(tmp_path / "own.npz", images=images, labels=np.arange(40) % 2, clients=np.arange(40) // 20)

    write(10)
    config = resolve(None, {"rounds": 1, "data": {"dataset": str(tmp_path / "own.npz")}, "method": {"name": "fedavg"}})
    jobs = jobs_for([config], tmp_path / "sweep")
    assert run_jobs(jobs, Diary()).failures == {}
    assert run_jobs(jobs, Diary()).failures == {}
    write(20)
    (failure,) = run_jobs(jobs, Diary()).failures.values()
    assert "data have changed since this run began" in failure


def test_the_time_in_all_is_that_of_a_queue() -> None:
    assert time_in_all([], 2) == 0
    assert time_in_all([10, 10, 10], 2) == 20  # not 15
    assert time_in_all([30, 10, 10, 10], 2) == 30
    assert time_in_all([12], 3) == 4  # one run, all workers
