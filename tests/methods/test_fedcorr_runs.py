"""FedCorr through all three of its stages: the contract's short runs have no round of fine-tuning."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contract_checks import check_finished, essence
from fedsir.runs.progress import Silent

Runner = Callable[..., Any]
STAGES: dict[str, Any] = {"rounds": 3, "method": {"iterations": 1, "fine_tuning_rounds": 1}}


def test_noisy_clients_rest_while_others_are_fine_tuned_on(straight_run: Runner) -> None:
    run = straight_run("fedcorr", **STAGES)
    check_finished(run)
    visit, fine_tuning, usual = run.lines[1:]
    pool = {k for k, level in visit["noise_levels"].items() if level <= run.config.method.clean_level}
    assert set(run.result["clean_clients"]) <= pool < set("01234")
    assert set(fine_tuning["bytes_up_by_client"]) == pool and fine_tuning["n_fine_tuned"] == len(pool)
    assert set(usual["bytes_up_by_client"]) == set("01234")


class StopAfterFineTuning(Silent):
    def round_done(self, metrics: dict[str, Any]) -> None:
        if metrics["round"] == 2:
            raise InterruptedError


@pytest.mark.parametrize("over", [{}, {"participation": 0.6, "dropout": 0.2}], ids=["with all", "in part"])
def test_stopped_after_fine_tuning_it_ends_as_a_straight_run(
    over: dict[str, Any], run_tiny: Runner, straight_run: Runner, tmp_path: Path
) -> None:
    out = tmp_path / "in-pieces"
    with pytest.raises(InterruptedError):
        run_tiny("fedcorr", out=out, progress=StopAfterFineTuning(), **STAGES, **over)
    again = run_tiny("fedcorr", out=out, workers=2, **STAGES, **over)
    assert essence(again) == essence(straight_run("fedcorr", **STAGES, **over))
