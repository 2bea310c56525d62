"""References that rest on few images: the run says so, once, with numbers."""

import io
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from fedsir.runs.progress import LiveTable, RoundLines

EVERY_ROUND = {"relabel": {"every": 1, "count_from": "one"}}


def test_residuals_of_few_images_are_noted_once(run_tiny: Callable[..., Any]) -> None:
    lines = run_tiny("fedsir", method=EVERY_ROUND).lines
    notes = [line["note"] for line in lines if "note" in line]
    assert len(notes) == 2  # both rounds relabel; metrics.jsonl has it with each
    assert "of 10 of 10 classes, fewer than the 128 features" in notes[0]
    config: Any = SimpleNamespace(method=SimpleNamespace(name="fedsir"), rounds=2, seed=0)
    data: Any = SimpleNamespace(name="digits", n_clients=5, given_labels=range(200), notes=())
    for kind in (RoundLines, LiveTable):
        for earlier, n_shown in (([], 1), (lines[:2], 0)):
            file = io.StringIO()
            progress = kind(Console(file=file, width=300))
            progress.started(config, data, earlier)
            for line in lines[len(earlier) :]:
                progress.round_done(line)
            progress.close()
            assert file.getvalue().count("note: clean clients have") == n_shown


def test_directions_do_without_the_note(run_tiny: Callable[..., Any]) -> None:
    direction = {"relabel": EVERY_ROUND["relabel"] | {"rule": "direction"}}
    assert not any("note" in line for line in run_tiny("fedsir", method=direction).lines)
