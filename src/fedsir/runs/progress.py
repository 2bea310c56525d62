"""What a person sees while a run goes on: a live table on a terminal, one line per round elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.table import Table

from fedsir.methods import method_file
from fedsir.printable import printable

if TYPE_CHECKING:
    from rich.console import Console

    from fedsir.data.federation import FederatedData
    from fedsir.engines.federation import AskProgress
    from fedsir.runs.config import RunConfig
    from fedsir.simulation.simulation import Step

VISIBLE_ROUNDS = 12
SILENCE = 10.0  # seconds after which a log hears how far a round is
REFRESH = 0.2  # seconds between two looks of the table
MOST_FAILURES = 8  # lines about clients left out, per round
# What clients do, in words; a task that is not here is called by its name.
DOING = {
    "identify": "looking for noisy clients",
    "measure_losses": "looking for noisy clients",
    "visit": "looking for noisy clients",
    "train": "training",
    "train_clean": "training clean clients",
    "train_noisy": "training the other clients",
    "correct": "correcting labels",
    "pretrain": "training before the first exchange",
    "look": "answering public images",
    "learn": "learning from public images",
}


class Silent:
    """Shows nothing; what others derive from. A listener of the simulation, and told when a run begins and ends."""

    def started(self, config: RunConfig, data: FederatedData, earlier: list[dict[str, Any]]) -> None:
        """`earlier` are the metrics of rounds done by an attempt before this one."""

    def answered(self, progress: AskProgress) -> None:
        """A client has answered."""

    def __call__(self, step: Step) -> None:
        self.round_done(step.metrics)

    def round_done(self, metrics: dict[str, Any]) -> None:
        """A round is done, and its checkpoint is written."""

    def finished(self, result: Mapping[str, Any], *, is_new: bool) -> None:
        """The run has its result, made now or by an earlier attempt."""

    def close(self) -> None:
        """Give the terminal back, also when a run is interrupted."""


class RoundLines(Silent):
    """One line per round, for logs and pipes; in long rounds now and then a line says how far it is."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last_word = time.monotonic()

    def started(self, config: RunConfig, data: FederatedData, earlier: list[dict[str, Any]]) -> None:
        self._n_rounds, self._clock = config.rounds, _Clock(config.rounds, len(earlier))
        self._noted = any("note" in metrics for metrics in earlier)
        self._say(_headline(config, data, earlier))
        for note in data.notes:
            self._say(f"note: {note}")

    def answered(self, progress: AskProgress) -> None:
        if time.monotonic() - self._last_word >= SILENCE:
            self._say(_doing(progress, self._n_rounds))

    def round_done(self, metrics: dict[str, Any]) -> None:
        self._clock.tick()
        cells = zip(COLUMNS, _cells(metrics), strict=True)
        line = "  ".join(f"{name} {cell}" for name, cell in cells if cell)
        eta = self._clock.eta()
        self._say(line if eta is None else f"{line}  eta {eta}")
        for failure in _left_out(metrics["failures"]):
            self._say(f"  {failure}")
        self._show_note(metrics)

    def finished(self, result: Mapping[str, Any], *, is_new: bool) -> None:
        if not is_new:
            self._say(f"finished earlier, nothing to do: {result['run_dir']}")

    def _show_note(self, metrics: dict[str, Any]) -> None:
        """Show what a method has to say about its data, the first time it says so."""
        if "note" in metrics and not self._noted:
            self._noted = True
            self._say(f"note: {metrics['note']}")

    def _say(self, text: str) -> None:
        self._last_word = time.monotonic()
        print_line(self._console, text)


class LiveTable(RoundLines):
    """A table that grows in place, for a person at a terminal; its last state stays on the screen."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live: Live | None = None
        self._rows: list[tuple[str, ...]] = []
        self._doing = ""

    def started(self, config: RunConfig, data: FederatedData, earlier: list[dict[str, Any]]) -> None:
        super().started(config, data, earlier)
        self._rows = [_cells(metrics) for metrics in earlier]
        self._live = Live(self._table(), console=self._console, auto_refresh=False)
        self._live.start(refresh=True)

    def answered(self, progress: AskProgress) -> None:
        self._doing = _doing(progress, self._n_rounds)
        if time.monotonic() - self._last_word >= REFRESH:
            self._refresh()

    def round_done(self, metrics: dict[str, Any]) -> None:
        self._clock.tick()
        self._rows.append(_cells(metrics))
        self._doing = ""
        for failure in _left_out(metrics["failures"]):
            print_line(self._console, f"round {metrics['round']}: {failure}")
        self._show_note(metrics)
        self._refresh()

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _refresh(self) -> None:
        self._last_word = time.monotonic()
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _table(self) -> Table:
        n_done = len(self._rows)  # round 0 is one of them
        if n_done > self._n_rounds:
            caption = f"{_rounds(self._n_rounds)} done"
        else:
            caption = self._doing or f"round {n_done} of {self._n_rounds}"
            caption += "" if (eta := self._clock.eta()) is None else f"; {eta} to go"
        table = Table(caption=caption, box=None, pad_edge=False, caption_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for row in self._rows[-VISIBLE_ROUNDS:]:
            table.add_row(*row)
        return table


def _doing(progress: AskProgress, n_rounds: int) -> str:
    task = DOING.get(progress.task, progress.task.replace("_", " "))
    return f"round {progress.round} of {n_rounds}: {task}, {progress.n_done:,} of {progress.n_asked:,} clients"


def _rounds(n: int) -> str:
    return f"{n:,} round{'s' if n != 1 else ''}"


COLUMNS = ("round", "accuracy", "loss", "loss clean", "loss noisy", "relabelled", "label noise", "seconds")


def _cells(metrics: dict[str, Any]) -> tuple[str, ...]:
    def number(name: str, form: str) -> str:
        value = metrics.get(name)
        return "" if value is None else format(value, form)

    return (
        str(metrics["round"]),
        number("accuracy", ".1%"),
        number("loss", ".3f"),
        number("loss_clean", ".3f"),
        number("loss_noisy", ".3f"),
        number("relabelled", ",d"),
        number("noise_after", ".1%"),
        number("seconds", ".1f"),
    )


def _left_out(failures: dict[str, str]) -> list[str]:
    """Return a line per client left out; where they are many, a line per reason."""
    if len(failures) <= MOST_FAILURES:
        return [f"client {client} left out: {reason}" for client, reason in failures.items()]
    by_reason: dict[str, list[str]] = {}
    for client, reason in failures.items():
        by_reason.setdefault(reason, []).append(client)
    often = sorted(by_reason.items(), key=lambda pair: -len(pair[1]))
    lines = [
        f"{len(clients):,} clients ({', '.join(clients[:3])}, …) left out: {reason}"
        if len(clients) > 3
        else f"client {', '.join(clients)} left out: {reason}"
        for reason, clients in often[:MOST_FAILURES]
    ]
    rest = sum(len(clients) for _, clients in often[MOST_FAILURES:])
    return lines + ([f"{rest:,} more clients left out for other reasons (metrics.jsonl has them)"] if rest else [])


def print_line(console: Console, text: str) -> None:
    """Print one line as it is: client names and reasons may hold brackets or control characters, which do nothing."""
    console.print(printable(text), highlight=False, markup=False, soft_wrap=True)


def _headline(config: RunConfig, data: FederatedData, earlier: list[dict[str, Any]]) -> str:
    resumed = f", going on after round {earlier[-1]['round']}" if earlier else ""
    return (
        f"{method_file.class_name(config.method.name)} on {data.name}: {data.n_clients:,} clients, "
        f"{len(data.given_labels):,} images, {_rounds(config.rounds)}, seed {config.seed}{resumed}"
    )


def duration(seconds: float) -> str:
    """Return a number of seconds for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Clock:
    """Estimates the time left from the rounds done by this attempt; round 0 (the start) is not counted."""

    def __init__(self, rounds: int, n_done: int) -> None:
        self._left = rounds + 1 - n_done
        self._counts = n_done > 0
        self._times: list[float] = []
        self._last = time.perf_counter()

    def tick(self) -> None:
        now = time.perf_counter()
        self._left -= 1
        if self._counts:
            self._times.append(now - self._last)
        self._counts = True
        self._last = now

    def eta(self) -> str | None:
        """Return the time left in words, None before a round was timed."""
        if not self._times:
            return None
        recent = self._times[-5:]
        return duration(sum(recent) / len(recent) * self._left)
