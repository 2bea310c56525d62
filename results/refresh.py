"""Makes the tables in results/ and in the docs again, from the runs that are committed: `make results`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fedsir.paper.reproduction import Reproduction
from fedsir.paper.scales import SCALES
from fedsir.paper.tables import TABLES as PAPER_TABLES
from fedsir.paper.tables import Selection
from fedsir.paper.variants import ALL_CLEAN, REFERENCES
from fedsir.paper.variants import METHODS as ROWS
from fedsir.runs.finished_runs import provenance_of
from fedsir.sweeps.sweep import Job, jobs_for
from fedsir.sweeps.sweep_file import read_sweep

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{page}.md" for page in ("results", "noise", "plus", "stages", "audit")),
)

TABLES = {  # by name and scale, and the folder in results/ that their runs are in
    ("table-cifar10", "cpu"): "cifar10-cpu",
    ("ablation", "cpu"): "cifar10-cpu",
    ("relabel-rules", "cpu"): "cifar10-cpu",
    ("figure-noise-reduction", "cpu"): "cifar10-cpu",
    ("figure-similarity", "cpu"): "cifar10-cpu",
    ("table-cifar100", "cpu"): "cifar100-cpu",
    ("beyond", "cpu"): "cifar10-cpu",
    ("table-cifar10", "images"): "cifar10-images",
    ("beyond", "images"): "cifar10-images",
    ("table-cifar10", "paper"): "cifar10-paper",
    ("beyond", "digits"): "digits-beyond",
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
    tables: dict[tuple[str, ...], str | None] = {
        ("reproduce", table, "--scale", scale, "--no-run", "--out", f"results/{folder}"): None
        for (table, scale), folder in TABLES.items()
    }
    return tables | digits


def digits_results(sweep: str) -> dict[str, Any]:
    """Return what `fedsir sweep results/digits/SWEEP.toml --json` prints once all runs are finished."""
    jobs, results = _finished(RESULTS / "digits" / f"{sweep}.toml")
    for name, result in results.items():
        result["run_dir"] = f"results/digits/runs/{name}"
    return {"results": results, "failures": {}, "provenance": provenance_of(job.folder for job in jobs)}


def _finished(sweep: Path) -> tuple[list[Job], dict[str, dict[str, Any]]]:
    """Return the jobs of a sweep whose runs are committed beside it, and their results by name."""
    jobs = jobs_for(read_sweep(sweep), sweep.parent / "runs")
    results = {job.name: job.result() for job in jobs}
    if missing := [name for name, result in results.items() if result is None]:
        raise SystemExit(f"{sweep.parent}/runs lacks {len(missing)} run(s) of {sweep.name}, the first is {missing[0]}.")
    return jobs, {name: result for name, result in results.items() if result is not None}


def digits_table() -> str:
    """Return one table of the comparisons on digits: a row per method, a column per noise rate."""
    rows = {METHODS[name]: [_cell(_compared(rate)[name]) for rate in NOISE_RATES] for name in METHODS}
    without_noise = [result["accuracy"] for name, result in _stored("sweep").items() if "-n0-" in name]
    return _table(rows | {"FedAvg, no noise": [_spread(without_noise)] * len(NOISE_RATES)})


def found_table() -> str:
    """Return clients on the right side and label noise, a row per method that tells clients apart or repairs labels."""
    rows = {
        name: [_found(_compared(rate)[name]) for rate in NOISE_RATES]
        for name in METHODS
        if _compared(NOISE_RATES[0])[name]["identification"] is not None
    }
    return _table({METHODS[name]: cells for name, cells in rows.items()})


def demo_table() -> str:
    """Return what the demo compares, a row per seed."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for result in _stored("demo").values():
        found.setdefault((result["method"], result["rounds"]), []).append(result)
    fedavg, longer, fedsir = found["fedavg", 20], found["fedavg", 25], found["fedsir", 20]
    lines = [
        "| seed | FedAvg | FedAvg, 25 rounds | FedSIR | identification | label noise of the noisy clients |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for three in zip(fedavg, longer, fedsir, strict=True):
        cells = [f"{100 * r['accuracy']:.1f} ± {100 * r['accuracy_half_width']:.1f}" for r in three]
        lines.append(_row(str(three[0]["seed"]), *cells, _identified(three[2:]), _noise(three[2:])))
    means = [_spread([r["accuracy"] for r in column]) for column in (fedavg, longer, fedsir)]
    return "\n".join([*lines, _row("mean (sd over seeds)", *means, _identified(fedsir), _noise(fedsir)), ""])


SWITCHES: dict[str, dict[str, Any]] = {  # of plus, as they are set in digits-plus/switches.toml
    "as it is": {},
    "hard corrected labels": {"relabel.targets": "hard"},
    "relabelling in every round": {"relabel.every": 1},
    "relabelling in every fourth round": {"relabel.every": 4},
    "features of the clean average": {"relabel.spectra_from": "clean_reference"},
    "prior of the given labels": {"la.prior": "given"},
    "weights by distance": {"daagg.weigh_by": "distance"},
    "distillation": {"kd.enabled": True, "kd.on": "all"},
}


def switches_table() -> str:
    """Return what each switch of plus does: a row per switch, accuracy and wrong labels left per noise rate."""
    jobs, results = _finished(RESULTS / "digits-plus" / "switches.toml")
    rates = ("0.4", "0.8")
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for job in jobs:
        switch = _switch(job.config.method.model_dump())
        found.setdefault((switch, str(job.config.data.noise_rate)), []).append(results[job.name])
    lines = [
        "| `plus` with | " + " | ".join(f"accuracy, {float(rate):.0%} | wrong labels left" for rate in rates) + " |",
        "|---|" + "---:|---:|" * len(rates),
    ]
    for title in SWITCHES:
        cells = []
        for rate in rates:
            runs = found[title, rate]
            left = [run["noise_after"] for run in runs]
            cells += [_spread([run["accuracy"] for run in runs]), _spread(left)]
        lines.append(_row(title, *cells))
    return "\n".join([*lines, ""])


def _switch(method: dict[str, Any]) -> str:
    """Return the switch that a run is about; all others are as they are."""

    def value(key: str) -> Any:
        group, name = key.split(".")
        return method[group][name]

    thrown = [title for title, switch in SWITCHES.items() if all(value(key) == said for key, said in switch.items())]
    return thrown[-1]  # "as it is" says nothing, so it always holds


OVERVIEW = {  # methods of `beyond` in the order of the overview
    "plus": "FedSIR `plus`",
    "fedsir": "FedSIR",
    "fednoro": "FedNoRo",
    "pruning": "Pruning",
    "fedavg": "FedAvg",
    ALL_CLEAN: "FedAvg, all clean",
}


def overview(folder: str, scale: str) -> str:
    """Return what `beyond` found at a scale, a row per condition: accuracy by method, and wrong labels left."""
    conditions: dict[str, dict[str, dict[str, Any]]] = {}
    for cell in json.loads((RESULTS / folder / f"beyond-{scale}.json").read_text())["cells"]:
        if cell["accuracy"] is not None:
            conditions.setdefault(cell["condition"], {})[cell["method"]] = cell
    lines = [
        _row("", *OVERVIEW.values(), "wrong labels: given → `plus`, FedSIR"),
        "|---|" + "---:|" * (len(OVERVIEW) + 1),
    ]
    for condition, cells in conditions.items():
        best = max(cell["accuracy"] for name, cell in cells.items() if name != ALL_CLEAN)
        accuracies = []
        for name in OVERVIEW:
            accuracy = cells[name]["accuracy"] if name in cells else None
            text = "–" if accuracy is None else f"{100 * accuracy:.1f}"
            accuracies.append(f"**{text}**" if accuracy == best and name != ALL_CLEAN else text)
        given, ours, theirs = (
            f"{100 * cells[name][noise]:.1f}" if name in cells else "–"
            for name, noise in (("plus", "noise_before"), ("plus", "noise_after"), ("fedsir", "noise_after"))
        )
        lines.append(_row(condition, *accuracies, f"{given} → {ours}, {theirs}"))
    return "\n".join([*lines, ""])


def courses(folder: str, scale: str) -> str:
    """Return what each relabelling left and how long each run took, a row per run at a scale."""
    found = {}  # by run folder, because tables share runs
    for table, of_scale in TABLES:
        if of_scale == scale and table in PAPER_TABLES:
            everything = Reproduction.of(PAPER_TABLES[table], SCALES[scale], Selection(), RESULTS / folder).everything()
            rows = ((block.condition.title, line) for block in everything.blocks for line in block.lines)
            found.update({run.folder: (title, line, run) for title, line in rows for run in line.runs})
    lines = [_row("", "method", "wrong labels after each relabelling", "hours"), "|---|---|---|---:|"]
    for title, line, run in sorted(found.values(), key=lambda row: row[0]):
        condition = title.partition(",")[0] if line.name == ALL_CLEAN else title
        left = [f"{100 * row['noise_after']:.0f}" for row in run.metrics if row.get("has_relabelled")]
        lines.append(_row(condition, line.title, ", ".join(left) or "–", f"{run['seconds'] / 3600:.1f}"))
    return "\n".join([*lines, ""])


OWN_TABLES = {
    "digits/table.md": digits_table,
    "digits/found.md": found_table,
    "digits/demo.md": demo_table,
    "digits-plus/switches.md": switches_table,
    "cifar10-cpu/overview.md": partial(overview, "cifar10-cpu", "cpu"),
    "cifar10-images/overview.md": partial(overview, "cifar10-images", "images"),
    "cifar10-images/courses.md": partial(courses, "cifar10-images", "images"),
    "cifar10-paper/courses.md": partial(courses, "cifar10-paper", "paper"),
    "digits-beyond/overview.md": partial(overview, "digits-beyond", "digits"),
}


def _table(rows: dict[str, list[str]]) -> str:
    lines = ["| method | " + " | ".join(f"{float(rate):.0%}" for rate in NOISE_RATES) + " |", "|---|---:|---:|---:|"]
    return "\n".join([*lines, *(_row(title, *cells) for title, cells in rows.items()), ""])


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _compared(rate: str) -> dict[str, dict[str, Any]]:
    return {row["method"]: row for row in json.loads((RESULTS / f"digits/noise-{rate}.json").read_text())}


def _cell(row: dict[str, Any]) -> str:
    star = "*" if row["is_different"] else ""
    return f"{100 * row['accuracy']:.1f} ({100 * row['seed_spread']:.1f}){star}"


def _found(row: dict[str, Any]) -> str:
    return f"{100 * row['identification']:.0f}, {100 * row['noise_before']:.0f} → {100 * row['noise_after']:.0f}"


def _identified(results: Sequence[dict[str, Any]]) -> str:
    return f"{100 * mean(result['identification_accuracy'] for result in results):.0f}"


def _noise(results: Sequence[dict[str, Any]]) -> str:
    before, after = (100 * mean(result[name] for result in results) for name in ("noise_before", "noise_after"))
    return f"{before:.1f} → {after:.1f}"


def _stored(sweep: str) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = json.loads((RESULTS / f"digits/{sweep}.json").read_text())["results"]
    return results


def _spread(shares: list[float]) -> str:
    return f"{100 * mean(shares):.1f} ({100 * stdev(shares):.1f})"


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
    """Run the commands, then fill the pages."""
    for words, file in commands().items():
        print("fedsir", *words, flush=True)
        done = subprocess.run([sys.executable, "-m", "fedsir", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        if file is not None:
            _write(RESULTS / file, _pretty(json.loads(done.stdout)))
    for sweep in ("sweep", "demo"):
        _write(RESULTS / f"digits/{sweep}.json", _pretty(digits_results(sweep)))
    for file, table in OWN_TABLES.items():
        _write(RESULTS / file, table())
    for page in PAGES:
        _write(page, filled(page.read_text(encoding="utf-8")))


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1) + "\n"


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
