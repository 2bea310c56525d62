"""The page of one run, finished or not."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedsir.report.client_tables import ORDER, Cell, Column, Row, client_table, tiles
from fedsir.report.confusion import Confusion, confusion_of
from fedsir.report.judgement import Judgement, judgement
from fedsir.report.key_figures import Figure
from fedsir.report.page import render
from fedsir.report.pictures import Grid
from fedsir.report.run_charts import accuracy_chart, bytes_chart, noise_chart, shares_chart
from fedsir.report.run_files import RunFiles, read_run
from fedsir.report.run_pictures import changed_pictures
from fedsir.report.similarities import squares
from fedsir.report.wording import MISSING, about, count, duration, listed, moment, percent, plural, size

# What a reader looks for first, in this order; the other settings follow below.
MAIN_SETTINGS = (
    "method.name", "method.preset", "data.dataset", "data.n_clients", "data.partition", "data.alpha", "data.noise",
    "data.noise_rate", "data.noisy_clients", "model.name", "model.weights", "rounds", "participation", "seed",
)  # fmt: skip
LIMITS_ALWAYS = (
    "This is one run with one seed. Another seed deals other data and may end elsewhere; the ± covers the choice of "
    "test images and nothing else.",
)
LIMITS_OF_VERDICTS = (
    "A verdict is about labels, not about people: a client with unusual cases can look noisy, and noise between "
    "classes that look alike can stay unseen.",
)
LIMITS_SIMULATED = (
    "The noise was added by the simulation, so the truth is known here. With real data nobody knows it, and real "
    "mistakes are less tidy.",
)
LIMITS_REAL = (
    "Nobody knows the true labels of these data: how many verdicts and corrections are right is not on this page.",
)
LIMITS_OF_LABELS = (
    "A changed label is the method's suggestion. Some suggestions are wrong: look at the samples before you use them.",
)


def run_page(
    folder: Path | str, *, images: bool = True, similarities: bool = False, data_dir: Path | None = None
) -> str:
    """Return the page of the run in a folder.

    Parameters
    ----------
    images : whether to show samples, which needs the data set
    similarities : whether to compute Stage I of some clients once more, for their class similarities
    data_dir : where published data sets lie
    """
    files = read_run(Path(folder))
    judged, verdicts = judgement(files), files.verdicts()
    table_rows, columns, words = _clients(files, judged, verdicts)
    shown, left_out = tiles(table_rows, words)
    pictures = changed_pictures(files, data_dir) if images else "The page was made without images."
    relabels = files.result is not None and bool(files.result.get("n_relabelled"))
    return render(
        "run.html.j2",
        files=files,
        headline=headline(files),
        lede=_lede(files),
        notices=_notices(files),
        figures=_figures(files),
        tally=_tally(files),
        tiles=shown,
        tiles_left_out=left_out,
        table=client_table(
            "All clients, worst first. Choose a column's name to sort by it.", columns, table_rows, "data.json"
        ),
        judged=judged,
        squares=squares(files, data_dir) if similarities else None,
        accuracy=accuracy_chart(files),
        noise=noise_chart(files),
        confusion=_confusion(files),
        relabels=relabels,
        grid=pictures if isinstance(pictures, Grid) else None,
        why_no_pictures=pictures if isinstance(pictures, str) else "",
        shares=shares_chart(files),
        traffic=bytes_chart(files),
        main_settings=[(key, _value(files.settings[key])) for key in MAIN_SETTINGS if key in files.settings],
        all_settings=[(key, _value(value)) for key, value in sorted(files.settings.items())],
        commands=_commands(files),
        made_with=_made_with(files.provenance),
        limits=_limits(files),
    )


# ---------------------------------------------------------------- words


def headline(files: RunFiles) -> str:
    """Return the run's answer in one sentence."""
    verdicts, result = files.verdicts(), files.result
    if result is None:
        return f"This run is not finished: {max(files.rounds_done, 0)} of {plural(files.rounds, 'round')} are done"
    reached = f"{percent(result['accuracy'])} of the test images are right"
    if not verdicts:
        whom = f"on {plural(len(files.clients), 'client')} " if files.clients else ""
        return f"{files.method} {whom}reaches {percent(result['accuracy'])}; it does not look for noisy clients"
    n_noisy = sum(verdict == "noisy" for verdict in verdicts.values())
    who = (
        f"{n_noisy} of {plural(len(verdicts), 'client')} look noisy"
        if n_noisy
        else f"No client of {count(len(verdicts))} looks noisy"
    )
    n_labels = sum(files.federation.sizes.values()) if files.federation else None
    changed = result.get("n_relabelled")
    if changed and n_labels:
        return f"{who}; {count(changed)} of {count(n_labels)} labels were changed"
    return f"{who}; {reached}"


def _lede(files: RunFiles) -> str:
    result = files.result
    if result is None:
        return f"The page shows what is there. To go on: {RunCommand(files).again_here}"
    parts = []
    if result["noise_before"] is not None and result["noise_after"] is not None and files.verdicts():
        parts.append(
            f"On the clients that really are noisy, {percent(result['noise_before'])} of the labels were wrong before "
            f"the run and {percent(result['noise_after'])} after it."
        )
    parts.append(
        f"The final model gets {percent(result['accuracy'])} of the test images right "
        f"(± {percent(result['accuracy_half_width'])} by the choice of test images)."
    )
    return " ".join(parts)


def _notices(files: RunFiles) -> list[str]:
    notices = list(files.federation.notes) if files.federation is not None else []
    failed: dict[str, int] = {}
    for line in files.lines:
        for client in line["failures"]:
            failed[client] = failed.get(client, 0) + 1
    if failed:
        worst = sorted(failed, key=lambda k: -failed[k])
        notices.append(
            f"{plural(len(failed), 'client')} failed to answer in at least one round: {listed(worst)}. "
            "The rounds went on without them."
        )
    return notices


def _tally(files: RunFiles) -> str:
    verdicts = files.verdicts()
    if not verdicts:
        return f"{files.method} gives no verdicts."
    words = [f"{count(n)} {word}" for word in ORDER if (n := sum(v == word for v in verdicts.values()))]
    truth = files.federation.really_noisy if files.federation is not None else None
    if truth is None:
        return ", ".join(words) + "."
    wrong = [k for k, verdict in verdicts.items() if verdict != "not assessed" and (verdict == "noisy") != (k in truth)]
    judged = "all verdicts agree with the simulation's truth" if not wrong else f"wrong: {listed(wrong)}"
    return f"{', '.join(words)}; {judged}."


def _figures(files: RunFiles) -> list[Figure]:
    result, verdicts = files.result, files.verdicts()
    figures = []
    if verdicts:
        noisy = [client for client, verdict in verdicts.items() if verdict == "noisy"]
        figures.append(Figure("Noisy clients", f"{count(len(noisy))} of {count(len(verdicts))}", listed(noisy, 8)))
    elif files.clients:
        figures.append(Figure("Clients", count(len(files.clients)), "no verdicts"))
    rates = files.split.noise_rates if files.split is not None else {}
    if rates and files.federation is not None:
        wrong = sum(rate * files.federation.sizes.get(client, 0) for client, rate in rates.items())
        total = sum(files.federation.sizes.values())
        figures.append(Figure("Wrong by estimate", f"≈\u202f{about(wrong)}", f"of {count(total)} labels"))
    if result is not None:
        if result.get("n_relabelled") is not None and (verdicts or result["n_relabelled"]):
            figures.append(Figure("Labels changed", count(result["n_relabelled"]), _precision(files)))
        if result["noise_before"] is not None:
            after = result["noise_after"]
            figures.append(
                Figure(
                    "Wrong labels",
                    f"{percent(result['noise_before'])} → {percent(after)}",
                    "on the really noisy clients",
                )
            )
        figures.append(
            Figure(
                "Test accuracy",
                percent(result["accuracy"]),
                f"± {percent(result['accuracy_half_width'])}, 95 % over test images",
            )
        )
    elif files.lines:
        last = [line["accuracy"] for line in files.lines if line.get("accuracy") is not None][-1:]
        figures.append(Figure("Test accuracy so far", percent(last[0]) if last else MISSING))
    sent = (
        [sum(line[key] for line in files.lines) for key in ("bytes_up", "bytes_down")]
        if files.lines
        else [(result or {}).get(key, 0) for key in ("bytes_up", "bytes_down")]
    )
    if any(sent):
        figures.append(Figure("Sent", size(sum(sent)), f"{size(sent[0])} from clients, {size(sent[1])} to them"))
    if result is not None:
        figures.append(Figure("Time", duration(result["seconds"]), plural(files.rounds, "round")))
    return figures


def _precision(files: RunFiles) -> str:
    repaired = [did.n_repaired for did in files.relabelled.values()]
    changed = sum(did.n_changed for did in files.relabelled.values())
    if not changed or None in repaired:
        return ""
    return f"{percent(sum(n or 0 for n in repaired) / changed)} of them now right"


# ---------------------------------------------------------------- clients


def _clients(
    files: RunFiles, judged: Judgement | None, verdicts: Mapping[str, str]
) -> tuple[list[Row], list[Column], list[str]]:
    """Return a row per client, worst first, the columns, and what each tile says."""
    federation, reasons = files.federation, files.reasons()
    rates = files.split.noise_rates if files.split is not None else {}
    posterior = files.split.posterior_noisy if files.split is not None else {}
    truth = federation.noise_by_client if federation is not None else None
    really_noisy = federation.really_noisy if federation is not None else None
    last_shares = files.shares[max(files.shares)] if files.shares else {}

    place = {client: i for i, client in enumerate(files.clients)}

    def worst_first(client: str) -> tuple[float, ...]:
        doubt = rates.get(client, posterior.get(client, 0.0))
        return ORDER.get(verdicts.get(client, ""), 3), -doubt, place[client]

    columns = [Column("client", False), Column("verdict", False), Column("samples")]
    columns += [Column(name) for name in judged.columns] if judged else []
    columns += [Column("probability noisy")] if posterior else []
    columns += [Column("wrong in truth")] if truth is not None else []
    columns += [Column("changed")] if files.relabelled else []
    columns += [Column("wrong after")] if files.relabelled and truth is not None else []
    columns += [Column("last weight")] if last_shares else []
    rows, words = [], []
    for i, client in enumerate(sorted(place, key=worst_first)):
        verdict = verdicts.get(client, "no verdict")
        did = files.relabelled.get(client)
        samples = federation.sizes[client] if federation is not None else None
        cells = [Cell(count(samples), samples)]
        if judged:
            found = judged.by_client.get(client, ((math.nan, MISSING),) * len(judged.columns))
            cells += [Cell(text, value) for value, text in found]
        if posterior:
            cells.append(Cell(percent(posterior.get(client)), posterior.get(client)))
        if truth is not None:
            cells.append(Cell(percent(truth.get(client)), truth.get(client)))
        if files.relabelled:
            cells.append(Cell(count(did.n_changed if did else None), did.n_changed if did else None))
            if truth is not None:
                cells.append(Cell(percent(did.after if did else None), did.after if did else None))
        if last_shares:
            cells.append(Cell(percent(last_shares.get(client)), last_shares.get(client)))
        reason = reasons.get(client, "")
        if (
            really_noisy is not None
            and verdict in ("clean", "noisy")
            and (verdict == "noisy") != (client in really_noisy)
        ):
            reason = "in truth noisy" if verdict == "clean" else "in truth clean"
        rows.append(Row(client, verdict, f"c{i}", tuple(cells), reason=reason))
        words.append(f"{verdict}, {percent(rates[client], 0)}" if client in rates else verdict)
    return rows, columns, words


def _confusion(files: RunFiles) -> Confusion | None:
    labels = files.labels
    if labels is None:
        return None
    n = len(labels.class_names)
    counts = np.bincount(labels.given * n + labels.corrected, minlength=n * n).reshape(n, n)
    return confusion_of(counts, labels.class_names)


# ---------------------------------------------------------------- settings and commands


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else str(value)


@dataclass(frozen=True)
class RunCommand:
    """Commands around a run's folder, by the name that the folder has."""

    files: RunFiles

    @property
    def again_here(self) -> str:
        """What goes on with the run."""
        return shlex.join(["fedsir", "run", f"{self.files.name}/config.toml", "--out", self.files.name])

    @property
    def afresh(self) -> str:
        """What makes the run once more in another folder."""
        return shlex.join(["fedsir", "run", f"{self.files.name}/config.toml", "--out", f"{self.files.name}-again"])


def _commands(files: RunFiles) -> list[tuple[str, str]]:
    if files.result is None:
        return [("Go on with the run, from the folder above it:", RunCommand(files).again_here)]
    mark = files.result["model_sha256"][:16]
    same = f"It ends in the same model on the same kind of machine: its fingerprint begins with {mark}."
    return [(f"Run it again, from the folder above it. {same}", RunCommand(files).afresh)]


def _made_with(provenance: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    if provenance is None:
        return []
    versions = ", ".join(f"{name} {number}" for name, number in provenance["versions"].items())
    facts = [
        ("versions", versions),
        ("machine", f"{provenance['processor']}, {provenance['platform']}"),
        ("device", str(provenance["device"])),
        ("first weights", ", ".join(f"{key} {value}" for key, value in provenance["initial_weights"].items() if value)),
        ("code", str(provenance.get("code_sha256") or "")[:16]),
        ("written", moment(str(provenance.get("written_at") or ""))),
    ]
    return [(name, text) for name, text in facts if text]


def _limits(files: RunFiles) -> tuple[str, ...]:
    is_known = files.federation is not None and files.federation.really_noisy is not None
    limits: tuple[str, ...] = LIMITS_ALWAYS
    if files.verdicts():
        limits += LIMITS_OF_VERDICTS
    if files.result is not None and files.result.get("n_relabelled"):
        limits += LIMITS_OF_LABELS
    if files.federation is None:
        return limits
    return limits + (LIMITS_SIMULATED if is_known else LIMITS_REAL)
