"""Makes the tables in results/ and in docs/results.md again, from the runs that are committed: `make results`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedsir.paper.variants import METHODS as ROWS
from fedsir.paper.variants import REFERENCES
from fedsir.runs.finished_runs import provenance_of
from fedsir.sweeps.sweep import jobs_for
from fedsir.sweeps.sweep_file import read_sweep

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent
PAGE = ROOT / "docs" / "results.md"

TABLES = {  # and the folder in results/ that their runs are in
    "table-cifar10": "cifar10-cpu",
    "ablation": "cifar10-cpu",
    "relabel-rules": "cifar10-cpu",
    "figure-noise-reduction": "cifar10-cpu",
    "figure-similarity": "cifar10-cpu",
    "table-cifar100": "cifar100-cpu",
}
METHODS = {variant.method: variant.title for variant in (*ROWS, REFERENCES[0])}  # of two FedNeds the one that distils
NOISE_RATES = ("0.3", "0.6", "0.9")

# What stands between these two comments in the page is a part of a file in results/: that under a heading, or all.
PART = re.compile(r"<!-- from (?P<file>\S+?)(?: under (?P<heading>.+?))? -->\n.*?<!-- end -->", re.DOTALL)

NOT_MEASURED = re.compile(r"^\| [^|]+ \| – \| – \|.*\n", re.MULTILINE)  # rows without a run: not for the page


def commands() -> dict[tuple[str, ...], str | None]:
    """Return the words after `fedsir`, and the file in results/ that takes the JSON it prints."""
    digits: dict[tuple[str, ...], str | None] = {
        ("compare", "results/digits/runs", "--only", f"data.noise_rate={rate}", "--against", "fedsir", "--json"): (
            f"digits/noise-{rate}.json"
        )
        for rate in NOISE_RATES
    }
    cifar: dict[tuple[str, ...], str | None] = {
        ("reproduce", table, "--scale", "cpu", "--no-run", "--out", f"results/{folder}"): None
        for table, folder in TABLES.items()
    }
    return cifar | digits


def digits_results() -> dict[str, Any]:
    """Return what `fedsir sweep results/digits/sweep.toml --json` prints once all runs are finished."""
    jobs = jobs_for(read_sweep(RESULTS / "digits" / "sweep.toml"), RESULTS / "digits" / "runs")
    results = {job.name: job.result() for job in jobs}
    if missing := [name for name, result in results.items() if result is None]:
        raise SystemExit(f"results/digits/runs lacks {len(missing)} run(s) of the sweep, the first is {missing[0]}.")
    for name, result in results.items():
        assert result is not None, "none is missing"
        result["run_dir"] = f"results/digits/runs/{name}"
    return {"results": results, "failures": {}, "provenance": provenance_of(job.folder for job in jobs)}


def digits_table() -> str:
    """Return one table of the comparisons on digits: a row per method, a column per noise rate."""
    rows = {name: [_cell(_compared(rate)[name]) for rate in NOISE_RATES] for name in METHODS}
    return _table({METHODS[name]: cells for name, cells in rows.items()} | _without_noise("digits"))


def longer_table() -> str:
    """Return the same of those that had ten more rounds, beside FedSIR, whose Stage I has ten epochs."""
    rows = {
        METHODS[name]: [_spread(_accuracies("longer", f"-{name}-a2-n{rate}-")) for rate in NOISE_RATES]
        for name in ("fedavg", "fedcorr", "fedelc", "fednoro")
    }
    fedsir = {"FedSIR, 20 rounds": [_cell(_compared(rate)["fedsir"]) for rate in NOISE_RATES]}
    return _table(rows | _without_noise("longer") | fedsir)


def _table(rows: dict[str, list[str]]) -> str:
    lines = ["| method | " + " | ".join(f"{float(rate):.0%}" for rate in NOISE_RATES) + " |", "|---|---:|---:|---:|"]
    return "\n".join([*lines, *(f"| {title} | " + " | ".join(cells) + " |" for title, cells in rows.items()), ""])


def _compared(rate: str) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in json.loads((RESULTS / f"digits/noise-{rate}.json").read_text())}


def _cell(row: dict[str, Any]) -> str:
    star = "*" if row["is_different"] else ""
    return f"{100 * row['accuracy']:.1f} ({100 * row['seed_spread']:.1f}){star}"


def _without_noise(file: str) -> dict[str, list[str]]:
    return {"FedAvg, no noise": [_spread(_accuracies(file, "-n0-"))] * len(NOISE_RATES)}


def _accuracies(file: str, part_of_name: str) -> list[float]:
    results = json.loads((RESULTS / f"digits/{file}.json").read_text())["results"]
    return [result["accuracy"] for name, result in results.items() if part_of_name in name]


def _spread(accuracies: list[float]) -> str:
    return f"{100 * mean(accuracies):.1f} ({100 * stdev(accuracies):.1f})"


def filled(page: str) -> str:
    """Return the page with every marked part as the file has it now."""
    return PART.sub(lambda match: _part(match["file"], match["heading"]), page)


def _part(file: str, heading: str | None) -> str:
    text = (RESULTS / file).read_text(encoding="utf-8")
    under = ""
    if heading is not None:
        _, found, text = text.partition(f"## {heading}\n")
        if not found:
            raise ValueError(f"{file} has no heading {heading!r}")
        text = re.split(r"^(?:## |Made with )", text, maxsplit=1, flags=re.MULTILINE)[0]
        under = f" under {heading}"
    text = NOT_MEASURED.sub("", text)
    return f"<!-- from {file}{under} -->\n\n{text.strip()}\n\n<!-- end -->"


def main() -> None:
    """Run the commands, then fill the page."""
    for words, file in commands().items():
        print("fedsir", *words, flush=True)
        done = subprocess.run([sys.executable, "-m", "fedsir", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        if file is not None:
            _write(RESULTS / file, _pretty(json.loads(done.stdout)))
    _write(RESULTS / "digits/digits.json", _pretty(digits_results()))
    _write(RESULTS / "digits/table.md", digits_table())
    _write(RESULTS / "digits/longer.md", longer_table())
    _write(PAGE, filled(PAGE.read_text(encoding="utf-8")))


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
