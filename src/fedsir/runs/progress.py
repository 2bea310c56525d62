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
    "describe": "gathering what classes look like",
    "judge": "estimating noise rates",
    "warm_up": "training clean clients a little",
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
        self._n_rounds, self._pace = config.rounds, Pace(config.rounds)
        if earlier:
            self._pace.round_done(earlier[-1]["round"])
        self._noted = any("note" in metrics for metrics in earlier)
        self._say(_headline(config, data, earlier))
        for note in data.notes:
            self._say(f"note: {note}")

    def answered(self, progress: AskProgress) -> None:
        if time.monotonic() - self._last_word >= SILENCE:
            self._say(_doing(progress, self._n_rounds))

    def round_done(self, metrics: dict[str, Any]) -> None:
        self._pace.round_done(metrics["round"])
        cells = zip(COLUMNS, _cells(metrics), strict=True)
        line = "  ".join(f"{name} {cell}" for name, cell in cells if cell)
        left = self._pace.left
        self._say(line if left is None else f"{line}  eta {duration(left)}")
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
        self._pace.round_done(metrics["round"])
        self._rows.append(_cells(metrics))
        self._doing = ""
        for failure in _left_out(metrics["failures"]):
            print_line(self._console, f"round {metrics['round']}: {failure}")
        self._show_note(metrics)
        self._refresh()

    def close(self) -> None:
        if self._live is not None:
            end_live(self._live)
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
            caption += "" if (left := self._pace.left) is None else f"; {duration(left)} to go"
        table = Table(caption=caption, box=None, pad_edge=False, caption_justify="left")
        for name in COLUMNS:
            table.add_column(name, justify="right")
        for row in self._rows[-VISIBLE_ROUNDS:]:
            table.add_row(*row)
        return table


def end_live(live: Live) -> None:
    """Give the terminal back, also where Ctrl-C came while the table was about to take it."""
    try:
        live.stop()
    except IndexError:  # rich takes back a hook that was not set yet
        live.console.show_cursor(True)


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


class Pace:
    """How fast the rounds of a run go, since this attempt began."""

    def __init__(self, n_rounds: int) -> None:
        self.n_rounds, self._began = n_rounds, time.monotonic()
        self._first: tuple[int, float] | None = None  # a round, and when it was done
        self._last: tuple[int, float] | None = None

    def round_done(self, t: int) -> None:
        self._last = (t, time.monotonic())
        self._first = self._first or self._last

    @property
    def n_timed(self) -> int:
        """Rounds between the first that was told and the last: how far to trust it."""
        return 0 if self._first is None or self._last is None else self._last[0] - self._first[0]

    @property
    def per_round(self) -> float | None:
        """Seconds of a round after the first that was told; None before there is one."""
        if self._first is None or self._last is None or not self.n_timed:
            return None
        return (self._last[1] - self._first[1]) / self.n_timed

    @property
    def whole(self) -> float | None:
        """Seconds of the whole run; round 0, in which some methods train long and others not at all, as it was."""
        if self.per_round is None or self._first is None:
            return None
        t, when = self._first
        start = when - self._began if t == 0 else self.per_round  # else it goes on with an earlier attempt
        return start + self.n_rounds * self.per_round

    @property
    def left(self) -> float | None:
        """Seconds until the last round is done."""
        if self.per_round is None or self._last is None:
            return None
        return self.per_round * (self.n_rounds - self._last[0])
