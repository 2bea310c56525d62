"""The table a run ends with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedsir.cli.terminal import say, say_table, say_text, size
from fedsir.runs.progress import duration

HEADER = ("method", "accuracy", "identification", "label noise", "bytes up", "bytes down", "time")
MOST_NAMES = 20
GROUPS = {
    "asked for": "two groups were asked for, not found; they are ",
    "found": "two groups found: ",
    "not found": "no convincing sign of two groups: ",
}


def result_table(results: Sequence[Mapping[str, Any]]) -> None:
    """Print one row per run, and where their folders are."""
    rows = [
        (
            result["method"],
            f"{result['accuracy']:.1%} ± {result['accuracy_half_width']:.1%}",
            _share(result["identification_accuracy"]),
            _change(result["noise_before"], result["noise_after"]),
            size(result["bytes_up"]),
            size(result["bytes_down"]),
            duration(result["seconds"]),
        )
        for result in results
    ]
    say_table(HEADER, rows)
    say_text(
        "± is a 95 % bootstrap over the test images of this one run, not a spread over seeds. "
        "Label noise is over the clients that really are noisy.",
        dim=True,
    )
    for result in results:
        if result.get("accuracy_spread") is not None:
            spread = f"{result['accuracy_spread']:.1%}"
            say(f"{result['method']}: mean over the clients' own models, whose accuracies spread by {spread}")
    for result in results:
        if result["noisy_clients"] is not None:
            say(_verdict(result))
    for result in results:
        if error := result.get("noise_rate_error"):
            say(
                f"{result['method']} estimated the noise rate of {error['n_clients']} clients: off by "
                f"{error['mean']:.3f} on average, by {error['max']:.3f} at most"
            )
    for result in results:
        if n := result.get("n_relabelled"):
            what = "1 label; it is" if n == 1 else f"{n:,} labels; they are"
            say(f"{result['method']} changed {what} in {Path(result['run_dir']) / 'labels.csv'}")
    for result in results:
        say(f"run folder: {result['run_dir']}")


def _verdict(result: Mapping[str, Any]) -> str:
    """Return who was called noisy and why, and who could not be assessed."""
    noisy, n_clean, reasons = result["noisy_clients"], len(result["clean_clients"]), result.get("not_assessed") or {}
    evidence, why = result["evidence"], ""
    if evidence is not None:
        how = GROUPS.get(result.get("two_groups", ""), "")  # older results do not say
        why = f" ({how}{_weight_of(evidence)})"
    if rates := result.get("noise_rates"):
        said = [[rate for k, rate in rates.items() if (k in noisy) == is_noisy] for is_noisy in (True, False)]
        parts = [
            f"{_range(some)} of {whose} labels"
            for some, whose in zip(said, ("their", "the others'"), strict=True)
            if some
        ]
        why = f" (wrong by estimate: {', '.join(parts)})"
    if noisy:
        n = len(noisy) + n_clean + len(reasons)
        verdict = f"{result['method']} called {len(noisy):,} of {n:,} clients noisy: {_names(noisy)}{why}"
    else:
        verdict = f"{result['method']} called all {n_clean:,} {'assessed ' if reasons else ''}clients clean{why}"
    for reason in dict.fromkeys(reasons.values()):
        verdict += f"; not assessed ({reason}): {_names([k for k, why_not in reasons.items() if why_not == reason])}"
    verdict += "; training treats these like noisy clients" if reasons else ""
    return verdict + (f"; {note}" if (note := result.get("split_note")) else "")


def _weight_of(evidence: Mapping[str, Any]) -> str:
    """Return what speaks for two groups, by two numbers per client or by pairs of classes."""
    apart = f"{evidence['separation']:.1f} spreads apart"
    if "probability" in evidence:
        return f"{apart} by pairs of classes, probability {evidence['probability']:.1%}"
    return f"{apart}, p = {evidence['p_value']:.2g}"


def _range(rates: list[float]) -> str:
    low, high = f"{min(rates):.0%}", f"{max(rates):.0%}"
    return low if low == high else f"{low} to {high}"


def _names(clients: list[str]) -> str:
    """Return as many names as a line holds."""
    return ", ".join(clients[:MOST_NAMES]) + (", … (result.json has them all)" if len(clients) > MOST_NAMES else "")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _change(before: float | None, after: float | None) -> str:
    return "–" if before is None or after is None else f"{before:.1%} → {after:.1%}"
