"""`fedsir sweep`: many runs from one file, some at a time; the same command again goes on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedsir.cli import Stopped, options
from fedsir.cli.terminal import say, say_json, say_table
from fedsir.errors import FedsirError

if TYPE_CHECKING:
    from fedsir.sweeps.sweep import Job, Outcome

MOST_RUNS = 100  # that a dry run lists; of more, it shows what each method takes
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would run and how long it would take; run nothing.")
]
SweepWorkers = Annotated[
    int | None,
    typer.Option(help="Runs at a time; if there are fewer runs, each gets several processes. Default: all cores."),
]


def sweep(
    file: Annotated[Path, typer.Argument(help="TOML file with the settings (docs/reproduce.md).", show_default=False)],
    out: Annotated[
        Path, typer.Option(help="Folder for the run folders, which are named as `fedsir run` names them.")
    ] = Path("runs"),
    trusted: Annotated[
        list[str] | None,
        typer.Option(
            "--method",
            metavar="FILE.py:CLASS",
            help="Method file that the sweep uses and you trust. Repeatable.",
            show_default=False,
        ),
    ] = None,
    workers: SweepWorkers = None,
    device: options.Device = "cpu",
    data_dir: options.DataDir = None,
    download: options.Download = False,
    dry_run: DryRun = False,
    as_json: options.Json = False,
) -> None:
    """Run every combination of settings in a file.

    Runs that are finished are not run again.

    Example: `fedsir sweep seeds.toml --workers 4`, then `fedsir compare runs/*`.
    """
    from fedsir.runs.devices import check_device
    from fedsir.runs.finished_runs import provenance_of
    from fedsir.runs.run_folder import usable_folder
    from fedsir.sweeps.sweep import jobs_for
    from fedsir.sweeps.sweep_file import read_sweep

    found = read_sweep(file, trusted or (), data_dir=data_dir, download=download)
    configs = [options.without_foreign_model(config) for config in found]
    check_device(device)
    jobs = jobs_for(configs, out)
    n_workers = options.n_workers(workers)
    if dry_run:
        print_estimate(jobs, n_workers, data_dir, download=download, as_json=as_json)
        return
    usable_folder(out)
    outcome = execute(jobs, workers=n_workers, device=device, data_dir=data_dir, download=download)
    if as_json:
        made = provenance_of(job.folder for job in jobs if job.name in outcome.results)
        say_json({"results": outcome.results, "failures": outcome.failures, "provenance": made})
    elif outcome.results:
        say(f"{len(outcome.results)} of {len(jobs)} runs are in {out}; `fedsir compare` puts them side by side.")
    refuse_failures(outcome)


def execute(jobs: Sequence[Job], *, workers: int, device: str, data_dir: Path | None, download: bool) -> Outcome:
    """Run the jobs with progress on the error stream; Ctrl-C leaves runs that can go on, and says so."""
    from rich.console import Console

    from fedsir.sweeps.progress import SweepLines, SweepTable
    from fedsir.sweeps.sweep import run_jobs

    console = Console(stderr=True)
    progress = (SweepTable if console.is_terminal else SweepLines)(console, workers)
    try:
        return run_jobs(jobs, progress, workers=workers, device=device, data_dir=data_dir, download=download)
    except KeyboardInterrupt:
        progress.close()
        raise Stopped("the same command goes on from the last round of each run.") from None
    finally:
        progress.close()


def refuse_failures(outcome: Outcome) -> None:
    """Leave with an error if runs failed; each was named when it happened."""
    if outcome.failures:
        name, reason = next(iter(outcome.failures.items()))
        more = f" (and {len(outcome.failures) - 1} more)" if len(outcome.failures) > 1 else ""
        raise FedsirError(f"{len(outcome.failures)} run(s) failed: {name}: {reason}{more}")


def print_estimate(
    jobs: Sequence[Job], workers: int, data_dir: Path | None, *, download: bool = False, as_json: bool = False
) -> None:
    """Print what is still to be run and how long that takes, from timed training steps."""
    from fedsir.runs.progress import duration
    from fedsir.sweeps.estimate import estimate_jobs, time_in_all

    estimates = estimate_jobs(jobs, data_dir=data_dir, download=download)
    total = time_in_all([seconds for seconds in estimates.values() if seconds is not None], workers)
    if as_json:
        runs = [{"run": name, "seconds": seconds} for name, seconds in estimates.items()]
        say_json({"hours": total / 3600, "workers": workers, "runs": runs})
        return
    if len(jobs) > MOST_RUNS:
        _print_by_method(jobs, estimates)
    else:
        rows = [("finished" if seconds is None else duration(seconds), name) for name, seconds in estimates.items()]
        say_table((), rows, is_shortened=False, left=(1,))
    n_open = sum(seconds is not None for seconds in estimates.values())
    in_all = f"about {duration(total)} ({total / 3600:.2f} hours) with {workers} worker(s)"
    say(f"{n_open:,} of {len(jobs):,} runs to do: {in_all}")


def _print_by_method(jobs: Sequence[Job], estimates: Mapping[str, float | None]) -> None:
    """Print a row per method: how many runs it has, how many of them are to do, and how long these take."""
    from fedsir.runs.progress import duration

    by_method: dict[str, list[float | None]] = {}
    for job in jobs:
        by_method.setdefault(job.config.method.name, []).append(estimates[job.name])
    rows = []
    for method, seconds in by_method.items():
        to_do = [each for each in seconds if each is not None]
        rows.append((method, f"{len(seconds):,}", f"{len(to_do):,}", duration(sum(to_do))))
    say_table(("method", "runs", "to do", "on one worker"), rows)
    say("--json has every run.")
