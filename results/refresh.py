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

RESULTS = Path(__file__).parent
ROOT = RESULTS.parent
PAGE = ROOT / "docs" / "results.md"

CIFAR = ("--scale", "cpu", "--no-run", "--out", "results/cifar10-cpu")
TABLES = ("table-cifar10", "ablation", "relabel-rules", "figure-noise-reduction")
METHODS = {variant.name: variant.title for variant in (*ROWS, REFERENCES[0])}
NOISE_RATES = ("0.3", "0.6", "0.9")

# What stands between these two comments in the page is a part of a file in results/: that under a heading, or all.
PART = re.compile(r"<!-- from (?P<file>\S+?)(?: under (?P<heading>.+?))? -->\n.*?<!-- end -->", re.DOTALL)


def commands() -> dict[tuple[str, ...], str | None]:
    """Return the words after `fedsir`, and the file in results/ that takes the JSON it prints."""
    digits: dict[tuple[str, ...], str | None] = {
        ("compare", "results/digits/runs", "--only", f"data.noise_rate={rate}", "--against", "fedsir", "--json"): (
            f"digits/noise-{rate}.json"
        )
        for rate in NOISE_RATES
    }
    sweep = ("sweep", "results/digits/sweep.toml", "--out", "results/digits/runs", "--json")
    return {("reproduce", table, *CIFAR): None for table in TABLES} | digits | {sweep: "digits/digits.json"}


def digits_table() -> str:
    """Return one table of the comparisons on digits: a row per method, a column per noise rate."""
    rows = {
        rate: {row["method"]: row for row in json.loads((RESULTS / f"digits/noise-{rate}.json").read_text())}
        for rate in NOISE_RATES
    }
    clean = [
        result["accuracy"]
        for name, result in json.loads((RESULTS / "digits/digits.json").read_text())["results"].items()
        if "-n0-" in name
    ]
    lines = ["| method | " + " | ".join(f"{float(rate):.0%}" for rate in NOISE_RATES) + " |", "|---|---:|---:|---:|"]
    for name, title in METHODS.items():
        lines.append(f"| {title} | " + " | ".join(_cell(rows[rate][name]) for rate in NOISE_RATES) + " |")
    possible = f"{100 * mean(clean):.1f} ({100 * stdev(clean):.1f})"
    return "\n".join([*lines, f"| FedAvg, no noise | {possible} | {possible} | {possible} |", ""])


def _cell(row: dict[str, Any]) -> str:
    star = "*" if row["is_different"] else ""
    return f"{100 * row['accuracy']:.1f} ({100 * row['seed_spread']:.1f}){star}"


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
    return f"<!-- from {file}{under} -->\n\n{text.strip()}\n\n<!-- end -->"


def main() -> None:
    """Run the commands, then fill the page."""
    for words, file in commands().items():
        print("fedsir", *words, flush=True)
        done = subprocess.run([sys.executable, "-m", "fedsir", *words], cwd=ROOT, stdout=subprocess.PIPE, check=True)
        if file is not None:
            (RESULTS / file).write_text(json.dumps(json.loads(done.stdout), ensure_ascii=False, indent=1) + "\n")
    (RESULTS / "digits/table.md").write_text(digits_table())
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
