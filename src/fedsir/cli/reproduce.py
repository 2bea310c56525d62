"""`fedsir reproduce`: a table or figure of the paper, ours beside the paper's; and our own table beyond it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedsir.cli import options
from fedsir.cli.sweep import DryRun, SweepWorkers, execute, print_estimate, refuse_failures
from fedsir.cli.terminal import say, say_files, say_json, say_table, say_text
from fedsir.data.noise_rate import NoiseRate, parse_noise_rate
from fedsir.errors import ConfigError, did_you_mean
from fedsir.paper.scales import SCALES, Scale
from fedsir.paper.tables import FIGURES, TABLES, Selection

if TYPE_CHECKING:
    from fedsir.paper.results import Filled

KNOWN = (*TABLES, *FIGURES)
OWN_TABLES = {name for name, table in TABLES.items() if table.is_own}
Value = TypeVar("Value", float, int, str, NoiseRate)


def reproduce(
    what: Annotated[str, typer.Argument(help=", ".join(KNOWN) + ".", show_default=False)],
    scale: Annotated[
        str,
        typer.Option(
            help="smoke: digits, 4 rounds, seconds. digits: digits, 20 rounds, seconds per run. "
            "cpu: 10,000 images, 20 rounds, minutes per run. images: 50,000 images, 20 rounds, under an hour per run. "
            "paper: 100 rounds, the paper's protocol."
        ),
    ] = "smoke",
    alpha: Annotated[str | None, typer.Option(help="Only these values, as in 0.1,0.5.", show_default=False)] = None,
    noise_rate: Annotated[
        str | None,
        typer.Option(help="Only these values, as in 0.3,0.6; of beyond also 0.1-0.9.", show_default=False),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Only these rows, as in fedavg,fedsir.", show_default=False)
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="Seeds, as in 0,1,2. Default: 42 as in the paper, 0 at smoke, 0 to 4 at digits.", show_default=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for tables, figures and run folders.")] = Path("reproduction"),
    workers: SweepWorkers = None,
    device: options.Device = "cpu",
    data_dir: options.DataDir = None,
    download: options.Download = False,
    dry_run: DryRun = False,
    no_run: Annotated[
        bool, typer.Option("--no-run", help="Run nothing; make the table from the runs that are finished.")
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Reproduce a table or figure of the paper, or our own table `beyond`.

    It runs what is missing, then shows our numbers, the paper's and the gap. Every cell is a run folder, so the same
    command goes on where it stopped. Several machines can share a table with --alpha, --noise-rate, --methods and
    --seeds; once their folders are in one place, --no-run makes the table.

    Examples: `fedsir reproduce table-cifar10`, `fedsir reproduce ablation --scale cpu --noise-rate 0.9`.
    """
    from fedsir.paper.reproduction import Reproduction
    from fedsir.runs.devices import check_device
    from fedsir.runs.run_folder import usable_folder

    if what not in KNOWN:
        raise ConfigError(
            f"There is no table or figure {what!r}.{did_you_mean(what, KNOWN)} Known: {', '.join(KNOWN)}."
        )
    if scale not in SCALES:
        raise ConfigError(f"--scale: there is no {scale!r}.{did_you_mean(scale, SCALES)} Known: {', '.join(SCALES)}.")
    chosen = Selection(
        alphas=_values("--alpha", alpha, float),
        # Only a table that lists its conditions has any with a range of rates.
        noise_rates=_values("--noise-rate", noise_rate, parse_noise_rate if what in OWN_TABLES else float),
        methods=_values("--methods", methods, str),
        seeds=_values("--seeds", seeds, int),
    )
    where: dict[str, Any] = {"device": device, "data_dir": data_dir, "download": download}
    figure = FIGURES.get(what)
    if figure and figure.table is None:
        _similarity(SCALES[scale], chosen, out, where, dry_run=dry_run, no_run=no_run, as_json=as_json)
        return
    table = TABLES[figure.table if figure and figure.table else what]
    check_device(device)
    reproduction = Reproduction.of(table, SCALES[scale], chosen, out)
    if no_run:
        reproduction = reproduction.of_what_is_there()
    n_workers = options.n_workers(workers)
    if dry_run:
        print_estimate(reproduction.jobs, n_workers, data_dir, download=download, as_json=as_json)
        return
    if not no_run:
        usable_folder(out)
    outcome = None if no_run else execute(reproduction.jobs, workers=n_workers, **where)
    filled = reproduction.filled()
    if not filled.runs:
        if outcome:
            refuse_failures(outcome)
        raise ConfigError(f"No run of {what} at scale {scale} is finished in {out / 'runs'}: leave out --no-run.")
    written = reproduction.write()
    if figure:
        from fedsir.paper.figures import noise_reduction

        written = noise_reduction(reproduction.everything(), out)
    _show(filled, written, as_json=as_json)
    if outcome:
        refuse_failures(outcome)


def _values(option: str, text: str | None, kind: Callable[[str], Value]) -> tuple[Value, ...] | None:
    """Return the values of a list such as 0.3,0.6; None where there is none."""
    if text is None:
        return None
    try:
        found = tuple(dict.fromkeys(kind(word.strip()) for word in text.split(",") if word.strip()))
    except ValueError:
        found = ()
    if not found:
        example = {float: "0.3,0.6", int: "0,1,2"}.get(kind, "fedavg,fedsir")  # type: ignore[call-overload]
        raise ConfigError(f"{option}: give values with commas between them, as in {example} (given: {text!r})")
    return found


def _show(filled: Filled, written: list[Path], *, as_json: bool) -> None:
    from fedsir.paper import rendering

    if as_json:
        say_json(rendering.as_json(filled) | {"files": [str(path) for path in written]})
        return
    names = rendering.header(filled.table)
    for block in filled.blocks:
        rows = [rendering.cells_of(filled.table, line, digits=1) for line in block.lines]
        # A column without a single number (one seed has no sd, other data no paper) only takes room.
        shown = [i for i in range(len(names)) if any(row[i] != "–" for row in rows)]
        header, *chosen = ([row[i] for i in shown] for row in (names, *rows))
        say_table(header, chosen, title=rendering.heading(block))
        if (line := rendering.closing_line(filled, block)) is not None:
            say_text(line)
        say("")
    if (gain := rendering.gain_line(filled)) is not None:
        say_text(gain)
    say_text(rendering.legend(filled), dim=True)
    say_files(written)


def _similarity(
    scale: Scale,
    chosen: Selection,
    out: Path,
    where: dict[str, Any],
    *,
    dry_run: bool,
    no_run: bool,
    as_json: bool,
) -> None:
    from fedsir.paper import figures

    alphas, seeds = chosen.alphas or scale.alphas or (0.5,), chosen.seeds or scale.seeds[:1]
    if len(alphas) > 1 or len(seeds) > 1 or chosen.methods:
        raise ConfigError(
            "figure-similarity shows one client: give one --alpha and one of --seeds, and leave out --methods."
        )
    config = figures.similarity_config(scale, alphas[0], seeds[0])
    if dry_run:
        raise ConfigError(
            "figure-similarity has no runs to time: it trains one client once per noise rate, in seconds at smoke and "
            "in minutes at other scales."
        )
    rates = [rate for rate in chosen.noise_rates or () if isinstance(rate, float)]
    found, written = figures.similarity(config, scale, out, noise_rates=rates, no_run=no_run, **where)
    statistics = [
        {"noise_rate": rate, "mean": of_client.mean, "energy": of_client.energy}
        for rate, of_client in zip(found.noise_rates, found.off_diagonal, strict=True)
    ]
    if as_json:
        files = [str(path) for path in written]
        say_json({"client": found.client, "off_diagonal": statistics, "files": files})
        return
    say(f"client {found.client} of {config.data.dataset}, {found.n_samples} images, α = {alphas[0]:g}")
    for row in statistics:
        say(f"noise rate {row['noise_rate']:g}: off-diagonal mean {row['mean']:.3f}, energy {row['energy']:.3f}")
    say_files(written)
